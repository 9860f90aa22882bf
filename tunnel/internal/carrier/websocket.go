package carrier

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
)

const (
	// maxUpgradeRequest bounds the request of a client without a proven identity.
	maxUpgradeRequest = 8 << 10
	// maxUpgrades is how many connections of a listener may be in their HTTP
	// request at once.
	maxUpgrades = 1000
	// refusedWait is how long a client may take to read why it was refused.
	refusedWait = 500 * time.Millisecond
)

// ClientWebSocket makes the WebSocket of a ws:// or wss:// URL on conn, which belongs to it
// from then on. The outer TLS is to the URL's host; config may be nil.
func ClientWebSocket(ctx context.Context, conn net.Conn, u *url.URL, config *tls.Config) (net.Conn, error) {
	if u.Scheme == "wss" {
		outer, err := Client(ctx, conn, outerTLS(config, u.Hostname()))
		if err != nil {
			return nil, fmt.Errorf("outer %w", err)
		}
		conn = outer
	}
	ws, err := websocket.Client(ctx, conn, u)
	if err != nil {
		return nil, err
	}
	return ws, nil
}

// outerTLS returns the configuration of the TLS to host. HTTP/2 has no upgrade.
func outerTLS(config *tls.Config, host string) *tls.Config {
	config = cmp.Or(config, &tls.Config{}).Clone()
	config.ServerName = cmp.Or(config.ServerName, host)
	config.NextProtos = []string{"http/1.1"}
	config.DynamicRecordSizingDisabled = true
	return config
}

// ListenWebSocket returns a listener that accepts WebSockets on the connections of
// l, whatever path they ask for. The outer TLS is by config; nil: none. Close waits
// for the listener's goroutines. Connections that were accepted stay open.
func ListenWebSocket(l net.Listener, config *tls.Config) net.Listener {
	if config != nil {
		config = admission.LimitMessages(outerTLS(config, ""))
	}
	s := &wsListener{outer: config, admission: admission.New(maxUpgrades, HelloTimeout)}
	s.Listener = group.NewListener(l, s.prepare)
	return s
}

// wsListener answers the requests. Until its request is whole, each connection has
// a place among the clients without a proven identity, as at a Server.
type wsListener struct {
	*group.Listener
	outer     *tls.Config // nil: no TLS
	admission *admission.Admission
	refused   atomic.Pointer[func(context.Context, net.Addr, error)]
}

// prepare answers the request of a new connection, and returns the WebSocket.
func (s *wsListener) prepare(ctx context.Context, raw net.Conn) net.Conn {
	ctx, cancel := context.WithTimeout(ctx, websocket.UpgradeTimeout)
	defer cancel()
	p, err := s.admission.Enter(ctx, raw)
	if err != nil {
		return s.refuse(ctx, raw, err)
	}
	defer p.Leave()
	stop := context.AfterFunc(p.Context(), func() { raw.Close() })
	conn, err := s.upgrade(p, raw)
	if !stop() || err != nil {
		return s.refuse(p.Context(), raw, err)
	}
	return conn
}

// HandleRefused has f called with why a connection did not come to Accept; its context has
// the cause if that has ended. Who serves the listener counts them.
func (s *wsListener) HandleRefused(f func(ctx context.Context, remote net.Addr, err error)) {
	s.refused.Store(&f)
}

// refuse tells why, and closes the connection. It returns what prepare then returns.
func (s *wsListener) refuse(ctx context.Context, conn net.Conn, err error) net.Conn {
	if f := s.refused.Load(); f != nil {
		(*f)(ctx, conn.RemoteAddr(), err)
	}
	conn.Close()
	return nil
}

// upgrade returns an error if the request cannot be upgraded. A client that speaks
// HTTP has then got an answer with the reason.
func (s *wsListener) upgrade(p *admission.Place, raw net.Conn) (net.Conn, error) {
	conn := raw
	if s.outer != nil {
		outer, err := Accept(p, raw, s.outer)
		if err != nil {
			return nil, err
		}
		defer outer.setPlace(nil)
		conn = outer
	}
	p.Begin()
	defer p.End(maxSpoken)
	request, early, err := readRequestHead(p, conn)
	if err != nil {
		return nil, err
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(request)))
	p.Yield()
	if err != nil {
		return nil, refuseRequest(conn, http.StatusBadRequest, "this is no request of HTTP/1.1, or it is too long")
	}
	if status, text := websocket.CheckRequest(r); status != 0 {
		return nil, refuseRequest(conn, status, text)
	}
	if err := websocket.SwitchProtocols(conn, r); err != nil {
		return nil, err
	}
	if err := raw.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return websocket.NewConn(conn, false, early), nil
}

// readRequestHead reads a request up to its body, and returns what came after it
// as early. A request that is too long is cut, and then net/http refuses it.
func readRequestHead(p *admission.Place, conn net.Conn) (head, early []byte, err error) {
	b := make([]byte, 0, socket.SmallRead)
	for {
		if i := headLength(b); i > 0 {
			return b[:i], bytes.Clone(b[i:]), p.Compute()
		}
		if len(b) == maxUpgradeRequest {
			return b, nil, p.Compute()
		}
		if len(b) == cap(b) {
			b = append(make([]byte, 0, 2*cap(b)), b...)
		}
		p.Wait()
		n, err := conn.Read(b[len(b):cap(b)])
		if b = b[:len(b)+n]; err != nil {
			return nil, nil, err
		}
	}
}

// headLength returns the length up to and with the first line that net/http takes
// for empty; zero if it has not come yet.
func headLength(b []byte) (n int) {
	for _, end := range []string{"\n\n", "\n\r\n"} {
		if i := bytes.Index(b, []byte(end)); i >= 0 && (n == 0 || i+len(end) < n) {
			n = i + len(end)
		}
	}
	return n
}

// refuseRequest sends an answer, gives the client a moment to read it, and returns
// it as an error.
func refuseRequest(conn net.Conn, status int, text string) error {
	header := ""
	if status == http.StatusUpgradeRequired {
		header = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
	}
	conn.SetDeadline(time.Now().Add(refusedWait))
	fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\n%sConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s\n",
		status, http.StatusText(status), header, len(text)+1, text)
	err := socket.Flush(conn)
	if c, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
		err = c.CloseWrite()
	}
	var b [512]byte
	for err == nil {
		_, err = conn.Read(b[:])
	}
	return fmt.Errorf("the answer is %d: %s", status, text)
}
