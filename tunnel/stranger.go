package tunnel

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// maxNames is how many protocols a ClientHello may name, and how many names and
// extensions the certificates of a client may have: of two bytes each, which is
// as short as they come, Go makes up to two hundred.
const maxNames = 32

// checkHello refuses a ClientHello that takes much memory.
func checkHello(hello *tls.ClientHelloInfo) error {
	if n := len(hello.SupportedProtos); n > maxNames {
		return &Error{Op: "connect", Code: CodeVersion, Err: fmt.Errorf("the client names %d protocols (ALPN), want %d at most", n, maxNames)}
	}
	return nil
}

// checkChain refuses certificates that take much memory, before the client's
// proof that they are its own.
func checkChain(chain []*x509.Certificate) error {
	n := 0
	for _, c := range chain {
		n += len(c.URIs) + len(c.DNSNames) + len(c.EmailAddresses) + len(c.IPAddresses) +
			len(c.Extensions) + len(c.UnknownExtKeyUsage) + len(c.Subject.Names) + len(c.Issuer.Names)
	}
	if most := maxNames * len(chain); n > most {
		return &Error{Op: "connect", Code: CodeBadCertificate, Err: fmt.Errorf("the client's certificates have %d names and extensions, want %d at most", n, most)}
	}
	return nil
}

// sparing has the server's side of config refuse a ClientHello that takes much
// memory. config is changed.
func sparing(config *tls.Config) *tls.Config {
	next := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if err := checkHello(hello); err != nil || next == nil {
			return nil, err
		}
		return next(hello)
	}
	return config
}
