package webhook

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"

	"github.com/causewayproject/causeway/internal/smallfile"
)

// A Certificate is a server's, in two files that are followed: a renewed one is
// used from the next handshake on, without a restart. It is safe for concurrent
// use, starts no goroutine, and holds nothing that would have to be closed.
type Certificate struct {
	certFile, keyFile string
	changed           func(error)

	mu          sync.Mutex // guards the fields below
	cert, key   []byte     // as they were last read
	certificate *tls.Certificate
}

// LoadCertificate reads a certificate, its chain, and its key, all PEM. Where
// they can't be used it returns an error.
//
// Where changed is not nil, it is called when another certificate is taken up
// (nil), and when what the files hold can't be used: once for each content, by
// the goroutine of the handshake that noticed. The one before stays in use.
func LoadCertificate(certFile, keyFile string, changed func(error)) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile}
	if _, err := c.Get(nil); err != nil {
		return nil, err
	}
	c.changed = changed
	return c, nil
}

// Get serves as tls.Config's GetCertificate. It reads the files at each call: a
// handshake is rare, as API servers keep their connections, and costs more.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert, err1 := smallfile.Read(c.certFile, 1)
	key, err2 := smallfile.Read(c.keyFile, 1)
	current, fresh, err := c.take(cert, key, errors.Join(err1, err2))
	if fresh && c.changed != nil {
		c.changed(err)
	}
	if current == nil {
		return nil, err
	}
	return current, nil
}

// take returns the certificate to use, whether it was told to another content
// than before, and what is wrong with that.
func (c *Certificate) take(cert, key []byte, err error) (current *tls.Certificate, fresh bool, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.certificate != nil && bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return c.certificate, false, nil
	}
	c.cert, c.key = cert, key
	if err == nil {
		var pair tls.Certificate
		if pair, err = tls.X509KeyPair(cert, key); err == nil {
			c.certificate = &pair
		}
	}
	if err != nil {
		err = fmt.Errorf("webhook: certificate: %w", err)
	}
	return c.certificate, true, err
}
