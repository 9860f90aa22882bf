package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/causewayproject/causeway/internal/admission"
)

// protocols are those of the CONNECT door, by ALPN, unless the Gateway's TLS has
// some.
var protocols = []string{"h2", "http/1.1"}

// startTLS makes the connection a TLS one, if the door has TLS.
func (c *caller) startTLS() error {
	if c.g.TLS == nil {
		return nil
	}
	below := &uncut{placed{Conn: c.raw, place: c.place}}
	tc := tls.Server(below, c.g.connectTLS)
	c.place.Begin()
	err := tc.HandshakeContext(c.place.Context())
	c.place.End(0)
	below.place = nil
	if err != nil {
		return err
	}
	c.conn, c.tls = tc, tc.ConnectionState()
	if len(c.certificates()) > 0 {
		c.place.Prove()
		c.raw.SetReadDeadline(c.deadline) // a long handshake has another one
		if c.gr.Accepting().Err() != nil {
			c.raw.SetReadDeadline(longAgo)
		}
	}
	return nil
}

// failTLS is the end of a client whose TLS failed. One that speaks plain HTTP
// is told so.
func (c *caller) failTLS(err error) {
	if c.displaced() == nil && (errors.Is(err, errCut) || errors.Is(err, os.ErrDeadlineExceeded) && c.gr.Accepting().Err() != nil) {
		return // a health check, say
	}
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && isAlphanumeric(header.RecordHeader[0]) {
		c.refuse(c.v.fail(PhaseHandshake, errWantsTLS), false)
		return
	}
	c.failHandshake(err)
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
type uncut struct{ placed }

// errCut must not be io.ErrUnexpectedEOF itself: crypto/tls makes io.EOF of
// that where a record ends.
var errCut = fmt.Errorf("the connection ended without the end of TLS: %w", io.ErrUnexpectedEOF)

func (u *uncut) Read(p []byte) (int, error) {
	n, err := u.placed.Read(p)
	if err == io.EOF {
		err = errCut
	}
	return n, err
}

// NetConn is for package abort.
func (u *uncut) NetConn() net.Conn { return u.Conn }

// placed is a connection in its handshake of TLS: while it has a place, it reads
// a record at a time, as far as the place allows.
type placed struct {
	net.Conn
	place   *admission.Place
	records admission.Records
}

func (p *placed) Read(b []byte) (int, error) {
	if p.place == nil {
		return p.Conn.Read(b)
	}
	return p.records.Read(p.Conn, b, p.place, false)
}

func (p *placed) Write(b []byte) (int, error) {
	if p.place != nil {
		p.place.Wait()
		p.place.Reach(admission.Greeting) // what was sent is an answer
	}
	return p.Conn.Write(b)
}
