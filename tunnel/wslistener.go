package tunnel

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
)

const (
	// maxUpgradeRequest bounds the request of a client, who is a stranger still.
	maxUpgradeRequest = 8 << 10
	// maxUpgrades is how many connections of a listener may be in their HTTP
	// request.
	maxUpgrades = 1000
	// refusedWait is how long a client may take to read why it was refused.
	refusedWait = 500 * time.Millisecond
)

// Listen waits for agents at a ws:// or wss:// URL, whose path they have to
// ask for, or at host:port, with any path, and with outer TLS if the field TLS
// is not nil. Close waits for
// the listener's goroutines; connections that were accepted live on. A client has
// 5 seconds and 8 KiB for its request; of more than 1,000 that have not sent it
// the oldest are closed, as [Server] says of MaxPending.
func (w WebSocket) Listen(ctx context.Context, address string) (net.Listener, error) {
	u := &url.URL{Scheme: "ws", Host: address}
	if strings.Contains(address, "://") {
		var err error
		if u, err = parseWebSocketURL(address); err != nil {
			return nil, err
		}
	}
	host := u.Host
	if u.Port() == "" {
		host = hostPort(u)
	}
	var config *tls.Config
	switch {
	case u.Scheme == "wss" && w.TLS == nil:
		return nil, configError("to listen at a wss URL takes WebSocket.TLS")
	case u.Scheme == "wss", !strings.Contains(address, "://") && w.TLS != nil:
		config = admission.Sparing(w.outer(""))
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &wsListener{
		addr: l.Addr(), path: u.Path, outer: config, admission: admission.New(maxUpgrades, helloTimeout),
		conns: make(chan net.Conn), done: make(chan struct{}), stop: stop,
	}
	s.wg.Go(func() { s.end(s.groups.Serve(ctx, l, 0, s.take)) })
	return s, nil
}

// wsListener answers the requests. What asks for it has its place among those
// who have not proven who they are, as at a Server.
type wsListener struct {
	addr      net.Addr
	path      string      // empty: any
	outer     *tls.Config // nil: no TLS
	admission *admission.Admission
	groups    group.Set
	conns     chan net.Conn
	done      chan struct{}  // closed by end
	stop      func()         // of what is not handed over
	wg        sync.WaitGroup // the groups

	mu    sync.Mutex // guards the fields below
	ended bool
	err   error // why Accept fails
}

// take has the request of a new connection answered, and gives the WebSocket to
// Accept.
func (s *wsListener) take(g *group.Group, raw net.Conn) {
	ctx, cancel := context.WithTimeout(g.Context(), upgradeTimeout)
	defer cancel()
	p, err := s.admission.Enter(ctx, raw)
	if err != nil {
		raw.Close()
		return
	}
	defer p.Leave()
	stop := context.AfterFunc(p.Context(), func() { raw.Close() })
	conn, err := s.upgrade(p, raw)
	if !stop() || err != nil {
		raw.Close()
		return
	}
	select {
	case s.conns <- conn:
	case <-s.done:
		conn.Close()
	}
}

// upgrade returns an error when there is no WebSocket; the client has been told
// why, if it speaks HTTP.
func (s *wsListener) upgrade(p *admission.Place, raw net.Conn) (net.Conn, error) {
	conn := raw
	if s.outer != nil {
		outer, err := secureStranger(p, raw, s.outer)
		if err != nil {
			return nil, err
		}
		defer outer.guard(nil)
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
	if s.path != "" && r.URL.Path != s.path {
		return nil, refuseRequest(conn, http.StatusNotFound, "agents connect at another path")
	}
	if status, text := checkRequest(r); status != 0 {
		return nil, refuseRequest(conn, status, text)
	}
	if err := switchProtocols(conn, r); err != nil {
		return nil, err
	}
	if err := raw.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	tune(conn, 0)
	return newWSConn(conn, false, early), nil
}

// readRequestHead reads a request up to its body, and returns what came after it
// as early. One that is too long is cut.
func readRequestHead(p *admission.Place, conn net.Conn) (head, early []byte, err error) {
	b := make([]byte, 0, smallRead)
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

// headLength returns the length up to the first empty line, that of net/http; zero
// if there is none yet.
func headLength(b []byte) int {
	for n := 0; ; {
		i := bytes.IndexByte(b[n:], '\n')
		if i < 0 {
			return 0
		}
		n += i + 1
		switch {
		case bytes.HasPrefix(b[n:], []byte("\n")):
			return n + 1
		case bytes.HasPrefix(b[n:], []byte("\r\n")):
			return n + 2
		}
	}
}

// refuseRequest answers, and waits a moment for the client to read it. It returns
// the answer as an error.
func refuseRequest(conn net.Conn, status int, text string) error {
	header := ""
	if status == http.StatusUpgradeRequired {
		header = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
	}
	conn.SetDeadline(time.Now().Add(refusedWait))
	fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\n%sConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s\n",
		status, http.StatusText(status), header, len(text)+1, text)
	err := flush(conn)
	if c, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
		err = c.CloseWrite()
	}
	var b [512]byte
	for err == nil {
		_, err = conn.Read(b[:])
	}
	return fmt.Errorf("the answer is %d: %s", status, text)
}

func (s *wsListener) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended, s.err = true, err
		close(s.done)
	}
}

func (s *wsListener) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.done:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return nil, s.err
}

func (s *wsListener) Close() error {
	s.end(&net.OpError{Op: "accept", Net: "tcp", Addr: s.addr, Err: net.ErrClosed})
	s.stop()
	s.wg.Wait()
	return nil
}

func (s *wsListener) Addr() net.Addr { return s.addr }
