package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
)

// protocols are those of the CONNECT door, by ALPN, unless the Gateway's TLS has
// some.
var protocols = []string{"h2", "http/1.1"}

// startTLS makes the connection a TLS one, if the door has TLS.
func (c *caller) startTLS(ctx context.Context) error {
	if c.g.TLS == nil {
		return nil
	}
	tc := tls.Server(uncut{c.raw}, c.g.connectTLS)
	if err := tc.HandshakeContext(ctx); err != nil {
		return err
	}
	c.conn, c.tls = tc, tc.ConnectionState()
	return nil
}

// failTLS is the end of a client whose TLS failed. One that speaks plain HTTP
// is told so.
func (c *caller) failTLS(err error) {
	if errors.Is(err, errCut) || errors.Is(err, os.ErrDeadlineExceeded) && c.gr.Accepting().Err() != nil {
		return // a health check, say
	}
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && isAlphanumeric(header.RecordHeader[0]) {
		c.refuse(c.v.fail(PhaseHandshake, errWantsTLS), false)
		return
	}
	c.v.fail(PhaseHandshake, err)
}

// certificates are those that were verified, by crypto/tls or by a function of
// the configuration.
func (c *caller) certificates() []*x509.Certificate {
	if len(c.tls.VerifiedChains) > 0 {
		return c.tls.VerifiedChains[0]
	}
	if cfg := c.g.TLS; cfg != nil && (cfg.VerifyPeerCertificate != nil || cfg.VerifyConnection != nil) {
		return c.tls.PeerCertificates
	}
	return nil
}

// uncut makes an error of the end of a connection below TLS. crypto/tls takes
// one between two records for the end of what was sent, which is what an
// attacker, or a crash, can make of it at any time.
type uncut struct{ net.Conn }

// errCut must not be io.ErrUnexpectedEOF itself: crypto/tls makes io.EOF of
// that where a record ends.
var errCut = fmt.Errorf("the connection ended without the end of TLS: %w", io.ErrUnexpectedEOF)

func (u uncut) Read(p []byte) (int, error) {
	n, err := u.Conn.Read(p)
	if err == io.EOF {
		err = errCut
	}
	return n, err
}

// NetConn is for package abort.
func (u uncut) NetConn() net.Conn { return u.Conn }
