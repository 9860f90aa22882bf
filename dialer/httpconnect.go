package dialer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/mask"
	"github.com/causewayproject/causeway/internal/printable"
)

// HTTPConnect dials through an HTTP proxy with the CONNECT method (RFC 9110, section
// 9.3.6). It is safe for concurrent use once its fields are set.
//
// The connection that it returns is the connection to the proxy, and its RemoteAddr
// is the proxy's. It is the conn that Forward
// returned, or the *tls.Conn to an https proxy. Only if the proxy has sent bytes of
// the target together with its answer is it wrapped. With HTTP2 it is a stream.
type HTTPConnect struct {
	// Addr is the proxy's host:port, or unix:/path of its socket. Required. A URL and
	// user info are errors: for credentials see Auth.
	Addr string
	// TLSConfig makes the proxy an https proxy. It is the configuration of the
	// connection to the proxy, and never of the connection to the target. An empty
	// ServerName means the host of Addr; it is required for a socket. NextProtos is
	// ignored. With a ClientSessionCache later handshakes need no signature; FromURL
	// sets one. If nil, the connection to the proxy has no TLS.
	TLSConfig *tls.Config
	// HTTP2 allows an https proxy to choose HTTP/2, and keeps the connection that many
	// dials share. The caller closes it. If nil, each dial has an HTTP/1.1 connection
	// of its own.
	HTTP2 *HTTP2
	// Auth authenticates to the proxy. If nil, no credentials are sent.
	Auth Authenticator
	// Header returns a header to send with a request for target, a host:port. It is
	// called at least once for each dial, and must be safe for concurrent use. It must
	// not set Host, Proxy-Authorization, Content-Length or Transfer-Encoding. The
	// returned header is not modified. If nil, nothing is added.
	Header func(ctx context.Context, target string) (http.Header, error)
	// Forward dials the proxy. If nil, it is Direct{}.
	Forward Dialer
	// Timeout bounds one DialContext, Forward included. If zero, it is 30 seconds; if
	// negative, only the context bounds the dial.
	Timeout time.Duration
}

// maxAttempts bounds how many 407 are answered in one dial. Negotiate and NTLM take
// three.
const maxAttempts = 5

// DialContext asks the proxy to connect to address, a host:port. The proxy looks names
// up. network is "tcp", "tcp4" or "tcp6". The error is an [*Error]; nothing is left
// open then.
func (d *HTTPConnect) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	h := &httpDial{HTTPConnect: d, proxyDial: proxyDial{
		op: opHTTP, scheme: "http", dialer: d, configured: d.Addr, forward: d.Forward,
		trace: contextTrace(ctx), address: address, began: time.Now(),
	}}
	if d.TLSConfig != nil {
		h.scheme = "https"
	}
	err := h.prepare(ctx, network)
	if cfg := d.TLSConfig; err == nil && cfg != nil && h.proxy.host == "" && cfg.ServerName == "" && !cfg.InsecureSkipVerify {
		err = errors.New("field TLSConfig: ServerName is required for a unix socket")
	}
	if err != nil {
		return nil, h.newError(ctx, PhaseConfig, err)
	}
	ctx, cancel := withTimeout(ctx, d.Timeout)
	defer cancel()
	return h.dial(ctx)
}

// httpDial is one call of DialContext.
type httpDial struct {
	*HTTPConnect
	proxyDial
	attempt       int         // 407 answers so far
	authorization string      // for the next request
	refused       []string    // the authorizations of earlier requests
	header        http.Header // of the field Header, as it was sent last
	proxyStatus   *string     // where to write that of a success; nil: nobody asks
	buf           [256]byte   // for requests that fit
}

// dial connects to the proxy, and once more for each 407 after which the proxy closes
// the connection.
func (h *httpDial) dial(ctx context.Context) (net.Conn, error) {
	if err := h.authenticate(ctx, nil); err != nil {
		return nil, err
	}
	for {
		conn, stream, err := h.openConn(ctx)
		if err != nil || stream != nil {
			return stream, err
		}
		br := getReader(conn)
		var again bool
		err = handshake(ctx, conn, func() (err error) {
			again, err = h.askProxy(ctx, func(ctx context.Context) (*Refusal, bool, error) {
				return h.sendConnect(ctx, conn, br)
			})
			return err
		})
		if err == nil && !again {
			return withBuffered(conn, br), nil
		}
		putReader(br)
		if err != nil {
			return nil, h.newError(ctx, PhaseConnect, err)
		}
		abort.Close(conn)
	}
}

// openConn returns a connection to a proxy that speaks HTTP/1.1, or with HTTP/2 a
// stream that is already connected to the target.
func (h *httpDial) openConn(ctx context.Context) (conn, stream net.Conn, err error) {
	if h.HTTP2 == nil || h.TLSConfig == nil {
		conn, err = h.dialProxy(ctx)
		return conn, nil, err
	}
	return h.HTTP2.openStream(ctx, h)
}

// dialProxy returns a connection to the proxy, with TLS if it is an https
// proxy.
func (h *httpDial) dialProxy(ctx context.Context) (net.Conn, error) {
	conn, err := h.connect(ctx)
	if err != nil || h.TLSConfig == nil {
		return conn, err
	}
	cfg := h.TLSConfig.Clone()
	cfg.ServerName = cmp.Or(cfg.ServerName, h.proxy.host)
	cfg.NextProtos = []string{"http/1.1"}
	if h.HTTP2 != nil {
		cfg.NextProtos = []string{protoHTTP2, "http/1.1"}
	}
	tc := tls.Client(conn, cfg)
	s := h.startPhase(PhaseTLS, h.Addr)
	err = handshake(ctx, conn, func() error { return tc.HandshakeContext(ctx) })
	if err != nil {
		err = h.newError(ctx, PhaseTLS, err)
		s.endPhase(err)
		return nil, err
	}
	if s != nil {
		state := tc.ConnectionState()
		s.event.TLS = &state
	}
	s.endPhase(nil)
	return tc, nil
}

// askProxy calls request until the proxy connects or refuses. If the credentials of
// the next request need a new connection, it returns again.
func (h *httpDial) askProxy(ctx context.Context, request func(context.Context) (*Refusal, bool, error)) (again bool, err error) {
	for {
		phase := PhaseConnect
		if h.attempt > 0 {
			phase = PhaseAuth
		}
		s := h.startPhase(phase, h.target.authority)
		if s != nil {
			h.proxyStatus = &s.event.ProxyStatus
		}
		refusal, kept, err := request(ctx)
		if err == nil && refusal != nil {
			err = h.newError(ctx, phase, h.maskRefusal(refusal))
		}
		s.endPhase(err)
		if refusal == nil || refusal.StatusCode != http.StatusProxyAuthRequired || h.Auth == nil || h.attempt == maxAttempts || ctx.Err() != nil {
			return false, err
		}
		if authErr := h.authenticate(ctx, refusal); authErr != nil {
			return false, authErr
		}
		if h.authorization == "" {
			return false, err
		}
		if !kept {
			return true, nil
		}
	}
}

// authenticate calls Auth for the next request. refusal is the 407 before it, and nil
// for the first request.
func (h *httpDial) authenticate(ctx context.Context, refusal *Refusal) error {
	if h.Auth == nil {
		return nil
	}
	c := &Challenge{Proxy: h.displayName(), Target: h.target.authority}
	if refusal != nil {
		h.attempt++
		c.Attempt = h.attempt
		c.Header = refusal.Header
		h.refused = append(h.refused, h.authorization)
	}
	value, err := h.Auth.Authenticate(ctx, c)
	if err == nil && !httpguts.ValidHeaderFieldValue(value) {
		err = errors.New("field Auth: the value to send holds a control character")
	}
	if err != nil {
		return h.newError(ctx, PhaseAuth, credentialsError{err})
	}
	h.authorization = value
	return nil
}

// sendConnect sends one CONNECT and reads the answer. refusal is nil if the proxy has
// connected. kept means that another request can be sent on the connection.
func (h *httpDial) sendConnect(ctx context.Context, conn net.Conn, br *bufio.Reader) (refusal *Refusal, kept bool, err error) {
	req, err := h.appendRequest(ctx, h.buf[:0])
	if err != nil {
		return nil, false, h.newError(ctx, PhaseConfig, err)
	}
	// A proxy that refuses early may have closed the connection. Then its answer says
	// more than the error of the write.
	_, werr := conn.Write(req)
	refusal, kept, err = readReply(br, conn, h.lookForStatus())
	if err != nil && werr != nil {
		err = werr
	}
	return refusal, kept, err
}

// lookForStatus returns what keeps the Proxy-Status of an answer's lines; nil if nobody
// asks for it.
func (h *httpDial) lookForStatus() func(line []byte) {
	if h.proxyStatus == nil {
		return nil
	}
	return func(line []byte) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if strings.EqualFold(string(name), "Proxy-Status") && len(value) <= 1<<10 {
			*h.proxyStatus = string(bytes.TrimSpace(value))
		}
	}
}

func (h *httpDial) appendRequest(ctx context.Context, b []byte) ([]byte, error) {
	authority := h.target.authority
	b = append(b, "CONNECT "...)
	b = append(b, authority...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, authority...)
	b = append(b, "\r\n"...)
	header, err := h.extraHeader(ctx)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		for _, v := range values {
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, v...)
			b = append(b, "\r\n"...)
		}
	}
	if h.authorization != "" {
		b = append(b, "Proxy-Authorization: "...)
		b = append(b, h.authorization...)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...), nil
}

// extraHeader returns the header of the field Header, if it is valid.
func (h *httpDial) extraHeader(ctx context.Context) (http.Header, error) {
	if h.Header == nil {
		return nil, nil
	}
	header, err := h.Header(ctx, h.target.authority)
	if err != nil {
		return nil, fmt.Errorf("field Header: %w", err)
	}
	h.header = header
	return header, checkHeader(header)
}

// sentSecrets returns what this dial has sent to the proxy and no error may quote.
func (h *httpDial) sentSecrets() []string {
	secrets := mask.Header(h.header)
	for _, value := range append(h.refused, h.authorization) {
		secrets = append(secrets, mask.Authorization(value)...)
	}
	return secrets
}

// maskRefusal returns a copy of refusal without the secrets that were sent: a proxy may
// repeat them.
func (h *httpDial) maskRefusal(refusal *Refusal) *Refusal {
	secrets := h.sentSecrets()
	masked := &Refusal{StatusCode: refusal.StatusCode, Reason: mask.Text(refusal.Reason, true, secrets), Header: refusal.Header.Clone()}
	for _, values := range masked.Header {
		for i, value := range values {
			values[i] = mask.Text(value, false, secrets)
		}
	}
	masked.Body = []byte(mask.Text(string(refusal.Body), true, secrets))
	return masked
}

func checkHeader(header http.Header) error {
	for name, values := range header {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("field Header: %q is not a valid header name", printable.Text(name, maxText))
		}
		switch canonical := http.CanonicalHeaderKey(name); canonical {
		case "Host", "Proxy-Authorization", "Content-Length", "Transfer-Encoding":
			return fmt.Errorf("field Header: %s can't be set; use Addr or Auth", canonical)
		}
		if i := slices.IndexFunc(values, func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }); i >= 0 {
			return fmt.Errorf("field Header: value %d of %s holds a control character", i, name)
		}
	}
	return nil
}
