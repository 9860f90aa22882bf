package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"

	"github.com/causewayproject/causeway/internal/admission"
)

// connectALPN are the protocols of the CONNECT door, unless the Gateway's TLS
// has some.
var connectALPN = []string{"h2", "http/1.1"}

var connectProtocol = protocol{
	door: DoorConnect, negotiate: negotiateConnect, connected: connectAnswer, refusal: connectRefusal,
}

// tlsError is why a client's TLS failed: no HTTP answer reaches it.
type tlsError struct{ error }

func (e tlsError) Unwrap() error { return e.error }

func connectRefusal(err error) string {
	if _, ok := errors.AsType[tlsError](err); ok {
		return ""
	}
	return string(answerFor(err).appendTo(nil))
}

// negotiateConnect reads one request. After a refusal the connection ends: what a client sends
// behind a CONNECT may be another's, and must not be read as a request (RFC 9931, section 8).
// Whether it is HTTP/2 says the first request, not ALPN: net/http, and so
// kubectl, offers h2 to an https proxy and speaks HTTP/1.1 whatever is chosen.
func negotiateConnect(ctx context.Context, c *clientConn) ([]byte, error) {
	if err := c.startConnectTLS(); err != nil {
		return nil, err
	}
	r, err := c.readRequest()
	if err != nil {
		return nil, err
	}
	c.beginAuthenticate()
	err = c.request.authorize(ctx, c.credentialsFor(r))
	c.endAuthenticate(admission.Greeting)
	return nil, err
}

// startConnectTLS is startTLS. A client that speaks plain HTTP is told so.
func (c *clientConn) startConnectTLS() error {
	err := c.startTLS()
	var header tls.RecordHeaderError
	switch {
	case err == nil:
		return nil
	case c.displacedError() == nil && (errors.Is(err, errCut) || c.drained(err)):
		return errSilent // a health check, say
	case errors.As(err, &header) && header.Conn != nil && isAlphanumeric(header.RecordHeader[0]):
		return errWantsTLS
	}
	return tlsError{err}
}

// readRequest reads a request, and leaves in early what follows it.
func (c *clientConn) readRequest() (*connectRequest, error) {
	buf := headerBuffers.Get().(*[headerBufferSize]byte)
	defer headerBuffers.Put(buf)
	c.awaitClient(admission.Silent)
	all, end, err := readHeader(c.conn, buf[:0], cmp.Or(c.g.MaxHeader, 16<<10))
	if err != nil {
		return nil, err
	}
	if string(all[:end]) == http2Preface {
		c.early = bytes.Clone(all)
		return nil, errHTTP2
	}
	c.early = bytes.Clone(all[end:])
	return parseRequest(all[:end])
}

func (c *clientConn) credentialsFor(r *connectRequest) Credentials {
	return Credentials{
		Door: DoorConnect, User: r.user, Password: r.password, Bearer: r.bearer,
		Certificates: c.verifiedCertificates(), ServerName: c.tls.ServerName,
		Address: r.authority, Remote: c.raw.RemoteAddr(),
	}
}
