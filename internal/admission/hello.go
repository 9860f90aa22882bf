package admission

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// maxShares is how many key shares the ClientHello of a short handshake may offer. A
// share has five bytes at least, for which crypto/tls takes up to sixty of memory.
const maxShares = 16

const extensionKeyShare = 51 // RFC 8446, 4.2.8

// isShort reports whether a ClientHello, the body of a record, is whole and offers
// few key shares. It has to be known before crypto/tls parses the message, which
// takes the memory for all shares.
func isShort(hello []byte) bool {
	message := tlsBytes(hello)
	message.take(1) // the type
	body, ok := message.vector(3)
	if ok {
		_, ok = body.take(2 + 32) // version, random
	}
	for _, size := range []int{1, 2, 1} {
		if ok {
			_, ok = body.vector(size) // session, cipher suites, compression methods
		}
	}
	if !ok || len(body) == 0 { // there need not be extensions
		return ok
	}
	extensions, ok := body.vector(2)
	shares := 0
	for ok && len(extensions) > 0 {
		kind, _ := extensions.number(2)
		var data tlsBytes
		if data, ok = extensions.vector(2); !ok || kind != extensionKeyShare {
			continue
		}
		var list tlsBytes
		for list, ok = data.vector(2); ok && len(list) > 0; shares++ {
			list.take(2) // the group
			_, ok = list.vector(2)
		}
	}
	return ok && len(body) == 0 && shares <= maxShares
}

// tlsBytes is the rest of a message in the presentation language of TLS (RFC 8446, 3).
type tlsBytes []byte

// take returns the next n bytes. If there are fewer, it takes them all.
func (b *tlsBytes) take(n int) (taken tlsBytes, ok bool) {
	if n > len(*b) {
		*b = nil
		return nil, false
	}
	taken, *b = (*b)[:n], (*b)[n:]
	return taken, true
}

// number returns a number of size bytes.
func (b *tlsBytes) number(size int) (n int, ok bool) {
	taken, ok := b.take(size)
	for _, x := range taken {
		n = n<<8 | int(x)
	}
	return n, ok
}

// vector returns a vector that begins with its length, of size bytes.
func (b *tlsBytes) vector(size int) (tlsBytes, bool) {
	n, ok := b.number(size)
	if !ok {
		return nil, false
	}
	return b.take(n)
}

// maxNames is how many protocols a ClientHello may name, and how many names and
// extensions a certificate of the client may have. crypto/tls and crypto/x509 take up
// to fifty bytes of memory for each byte of them, and up to two hundred for a URI.
const maxNames = 64

// LimitMessages makes a server with this configuration refuse handshake messages that
// take much memory for their size. It changes config, and limits clones of what
// its GetConfigForClient returns. Those that name no protocols (ALPN) then name protos.
func LimitMessages(config *tls.Config, protos ...string) *tls.Config {
	choose := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if n := len(hello.SupportedProtos); n > maxNames {
			return nil, fmt.Errorf("the client names %d protocols (ALPN), want %d at most", n, maxNames)
		}
		if choose == nil {
			return nil, nil
		}
		chosen, err := choose(hello)
		if chosen != nil {
			chosen = chosen.Clone()
			limitNames(chosen, protos)
		}
		return chosen, err
	}
	limitNames(config, protos)
	return config
}

func limitNames(config *tls.Config, protos []string) {
	if len(config.NextProtos) == 0 {
		config.NextProtos = protos
	}
	verify := config.VerifyConnection
	// VerifyConnection is called before the client has proven that it has the key.
	config.VerifyConnection = func(state tls.ConnectionState) error {
		for _, c := range state.PeerCertificates {
			if n := countNames(c); n > maxNames {
				return fmt.Errorf("a certificate of the client has %d names and extensions (a URI counts as four), want %d at most", n, maxNames)
			}
		}
		if verify == nil {
			return nil
		}
		return verify(state)
	}
}

// countNames counts names and extensions. A URI counts as four.
func countNames(c *x509.Certificate) int {
	return 4*len(c.URIs) + len(c.DNSNames) + len(c.EmailAddresses) + len(c.IPAddresses) +
		len(c.Extensions) + len(c.UnknownExtKeyUsage) + len(c.Subject.Names) + len(c.Issuer.Names)
}
