package proxytest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

	"github.com/causewayproject/causeway/internal/relay"
)

// Request is what a proxy was asked for, for its log.
type Request struct {
	// Target is the host:port, as the client wrote it.
	Target string
	// Header is the header of a CONNECT request. It holds credentials.
	Header http.Header
	// Accepted reports whether the credentials were right.
	Accepted bool
	// TLS reports whether the client came by TLS, and ClientCertificate whether
	// it showed a certificate to the proxy.
	TLS, ClientCertificate bool
}

// HTTP is a CONNECT proxy. Over a tls.Listener it is an https proxy.
type HTTP struct {
	// Username and Password are what it asks for. If both are empty, nothing.
	Username, Password string
	// Dial connects to targets. If nil, net.Dialer.
	Dial dialFunc
	// Log, if not nil, is called for each request, before its answer.
	Log func(Request)
}

// Handle serves one client. It is the function for [Serve].
func (p *HTTP) Handle(ctx context.Context, conn net.Conn) {
	br := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if tc, ok := conn.(*tls.Conn); ok {
			state := tc.ConnectionState()
			req.TLS = &state
		}
		switch {
		case !p.isAuthorized(req):
			writeAnswer(conn, http.StatusProxyAuthRequired, "Proxy-Authenticate: Basic realm=\"proxytest\"\r\n")
		case req.Method != http.MethodConnect:
			writeAnswer(conn, http.StatusMethodNotAllowed, "Allow: CONNECT\r\n")
		default:
			p.connectTarget(ctx, conn, br, req.Host)
			return
		}
	}
}

// isAuthorized checks the credentials and logs the request.
func (p *HTTP) isAuthorized(req *http.Request) bool {
	want := ""
	if p.Username != "" || p.Password != "" {
		want = "Basic " + base64.StdEncoding.EncodeToString([]byte(p.Username+":"+p.Password))
	}
	accepted := want == "" || req.Header.Get("Proxy-Authorization") == want
	if p.Log != nil {
		p.Log(Request{
			Target:            req.Host,
			Header:            req.Header,
			Accepted:          accepted,
			TLS:               req.TLS != nil,
			ClientCertificate: req.TLS != nil && len(req.TLS.PeerCertificates) > 0,
		})
	}
	return accepted
}

func (p *HTTP) connectTarget(ctx context.Context, conn net.Conn, br *bufio.Reader, target string) {
	far, err := dialTarget(ctx, p.Dial, target)
	if err != nil {
		writeAnswer(conn, http.StatusBadGateway, "")
		return
	}
	_, err = fmt.Fprint(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	if n := br.Buffered(); err == nil && n > 0 {
		early, _ := br.Peek(n)
		_, err = far.Write(early)
	}
	if err != nil {
		far.Close()
		return
	}
	relay.Relay(ctx, conn, far)
}

func writeAnswer(conn net.Conn, status int, header string) {
	text := http.StatusText(status)
	fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\n%sContent-Length: %d\r\n\r\n%s", status, text, header, len(text), text)
}

// replyFor is the SOCKS5 reply for an error of a dial.
func replyFor(err error) byte {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, syscall.ENETUNREACH):
		return 3
	case errors.Is(err, syscall.EHOSTUNREACH):
		return 4
	case errors.Is(err, syscall.ECONNREFUSED):
		return 5
	}
	return 1
}
