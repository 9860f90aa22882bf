package tunnel

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// upgradeTimeout is how long a client may take for its request, TLS included,
// and for the answer.
const upgradeTimeout = 10 * time.Second

// websocketHandler answers the requests of [WebSocket]'s Dial, hands over the
// connection and returns when serve does. serve closes the connection. Other
// requests are answered with 426 or 400 and a text.
func websocketHandler(serve func(net.Conn)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, text := checkRequest(r); status != 0 {
			w.Header().Set("Upgrade", "websocket")
			w.Header().Set("Sec-WebSocket-Version", "13")
			if r.ProtoMajor == 1 { // HTTP/2 does not know it
				w.Header().Set("Connection", "Upgrade")
			}
			http.Error(w, text, status)
			return
		}
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, "this server can't upgrade a connection", http.StatusInternalServerError)
			return
		}
		early, _ := brw.Reader.Peek(brw.Reader.Buffered())
		early = bytes.Clone(early)
		conn.SetDeadline(time.Now().Add(upgradeTimeout))
		_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n", acceptKey(r.Header.Get("Sec-WebSocket-Key")), subprotocol)
		if err == nil {
			err = conn.SetDeadline(time.Time{})
		}
		if err != nil {
			lowest(conn).Close()
			conn.Close()
			return
		}
		tune(conn, 0)
		serve(newWSConn(conn, false, early))
	})
}

// checkRequest returns the status and text of a refusal, RFC 6455, section
// 4.2.1; zero if there is none.
func checkRequest(r *http.Request) (status int, text string) {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	switch {
	case r.ProtoMajor != 1, !r.ProtoAtLeast(1, 1), !hasToken(r.Header, "Connection", "upgrade"), !hasToken(r.Header, "Upgrade", "websocket"):
		return http.StatusUpgradeRequired, "agents connect here by WebSocket over HTTP/1.1"
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return http.StatusUpgradeRequired, "the version of WebSocket is 13"
	case r.Method != http.MethodGet:
		return http.StatusBadRequest, "WebSocket takes the method GET"
	case err != nil || len(key) != 16:
		return http.StatusBadRequest, "Sec-WebSocket-Key is not 16 bytes in base64"
	case !hasToken(r.Header, "Sec-WebSocket-Protocol", subprotocol):
		return http.StatusBadRequest, "the subprotocol is " + subprotocol
	}
	return 0, ""
}

// Listen waits for agents at a ws:// or wss:// URL, whose path they have to
// ask for, or at host:port, with any path and no outer TLS. Close waits for
// the listener's goroutines; connections that were accepted live on.
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
	if u.Scheme == "wss" {
		if w.TLS == nil {
			return nil, configError("to listen at a wss URL takes WebSocket.TLS")
		}
		config = w.outer("")
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	s := &wsListener{addr: l.Addr(), path: u.Path, conns: make(chan net.Conn), done: make(chan struct{})}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	s.server = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: upgradeTimeout,
		IdleTimeout:       upgradeTimeout,
		MaxHeaderBytes:    maxUpgradeHeader,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	s.wg.Go(func() {
		err := s.server.Serve(l)
		s.end(err)
	})
	return s, nil
}

// wsListener has an HTTP server of its own.
type wsListener struct {
	addr   net.Addr
	path   string // empty: any
	server *http.Server
	conns  chan net.Conn
	done   chan struct{}  // closed by end
	wg     sync.WaitGroup // the server and its handlers

	mu    sync.Mutex // guards the fields below
	ended bool
	err   error // why Accept fails
}

// ServeHTTP is a handler; the server calls it.
func (s *wsListener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.begin() {
		panic(http.ErrAbortHandler)
	}
	defer s.wg.Done()
	if s.path != "" && r.URL.Path != s.path {
		http.NotFound(w, r)
		return
	}
	websocketHandler(s.hand).ServeHTTP(w, r)
}

// begin reports whether a handler may run; end and Close then wait for it.
func (s *wsListener) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.wg.Add(1)
	}
	return !s.ended
}

// hand gives a connection to Accept.
func (s *wsListener) hand(conn net.Conn) {
	select {
	case s.conns <- conn:
	case <-s.done:
		conn.Close()
	}
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
	err := s.server.Close()
	s.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *wsListener) Addr() net.Addr { return s.addr }
