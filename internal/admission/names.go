package admission

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// maxNames is how many protocols a ClientHello may name, and how many names and
// extensions a certificate of the client may have. Of some bytes each Go makes up
// to fifty, and of a URI up to two hundred.
const maxNames = 64

// Sparing has a server with this configuration refuse messages of a handshake that
// take much memory for their size. config is changed; one that its
// GetConfigForClient returns is not.
func Sparing(config *tls.Config) *tls.Config {
	choose, verify := config.GetConfigForClient, config.VerifyConnection
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if n := len(hello.SupportedProtos); n > maxNames {
			return nil, fmt.Errorf("the client names %d protocols (ALPN), want %d at most", n, maxNames)
		}
		if choose == nil {
			return nil, nil
		}
		return choose(hello)
	}
	// It is called before the client's proof that the certificates are its own.
	config.VerifyConnection = func(state tls.ConnectionState) error {
		for _, c := range state.PeerCertificates {
			if n := names(c); n > maxNames {
				return fmt.Errorf("a certificate of the client has %d names and extensions (a URI counts as four), want %d at most", n, maxNames)
			}
		}
		if verify == nil {
			return nil
		}
		return verify(state)
	}
	return config
}

// names counts a URI as four.
func names(c *x509.Certificate) int {
	return 4*len(c.URIs) + len(c.DNSNames) + len(c.EmailAddresses) + len(c.IPAddresses) +
		len(c.Extensions) + len(c.UnknownExtKeyUsage) + len(c.Subject.Names) + len(c.Issuer.Names)
}
