package e2e

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
)

// A site serves a page, counts what asks for its changes, and fails when it is
// told to.
type site struct {
	http.Handler
	asked    atomic.Int64
	fail     atomic.Int32  // the status to answer with; zero: none
	requests chan struct{} // one for each update since somebody looked here
}

func newSite(h http.Handler) *site { return &site{Handler: h, requests: make(chan struct{}, 1)} }

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/live" {
		s.Handler.ServeHTTP(w, r)
		return
	}
	s.asked.Add(1)
	select {
	case s.requests <- struct{}{}:
	default:
	}
	switch code := int(s.fail.Load()); code {
	case 0:
		s.Handler.ServeHTTP(w, r)
	case http.StatusFound:
		http.Redirect(w, r, "/login", code)
	default:
		http.Error(w, "told to", code)
	}
}

// startMortal starts an agent in this process until the test ends, or until
// its carrier is cut and it gets no other.
func startMortal(t *testing.T, h *hub, server string) (kill func()) {
	t.Helper()
	invitation, err := tunnel.ParseInvitation(h.invite(server))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards the fields below
	var conns []net.Conn
	dead := false
	agent := &tunnel.Agent{
		Servers: []string{server}, Credentials: &tunnel.MemoryCredentials{}, Grace: -1,
		Invitation: func(context.Context) (tunnel.Invitation, error) { return invitation, nil },
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && dead {
				conn.Close()
				return nil, net.ErrClosed
			}
			conns = append(conns, conn)
			return conn, err
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		dead = true
		for _, conn := range conns {
			if tcp, ok := conn.(*net.TCPConn); ok {
				tcp.SetLinger(0)
				tcp.Close()
			}
		}
	}
}

func contains(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}
