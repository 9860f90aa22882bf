package tunnel_test

import (
	"context"
	"flag"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

// The crowd of TestStrangersKeepNobodyOut takes all of a machine for itself: on one
// that has other work, or with the race detector, a tenth of it does as much.
var full = flag.Bool("full", false, "attack with ten times as many strangers; takes a calm machine")

// Strangers who come again and again from one address keep no agent out, and
// disturb nobody whose session is there.
func TestStrangersKeepNobodyOut(t *testing.T) {
	const attackers, elsewhere, agents = "127.0.0.9", "127.0.0.2", "127.0.0.3"
	for _, tt := range []struct {
		name, kind string
		n          int
	}{
		{"silent", "tcp", 2500},
		{"hello", "tcp", 2500},
		{"handshakes", "tcp", 250},
		{"no certificate", "tcp", 1200},
		{"half a request", "websocket listener", 2500},
		{"websocket, silent", "websocket listener", 2500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var refused atomic.Int64
			n, fewer := tt.n, 10
			if *full {
				fewer = 1
			}
			if tt.kind == "tcp" {
				n /= fewer
			}
			b := newBed(t, &tunnel.Server{MaxPending: 1000 / fewer, Hooks: tunnel.Hooks{Refused: func(net.Addr, error) { refused.Add(1) }}})
			address := b.serveKind(tt.kind)
			url := address
			if tt.kind != "tcp" {
				url = "ws://" + address + "/"
			}
			// A machine that is busy with something else is no failure.
			calm := b.connects(url, agents)
			before := runtime.NumGoroutine()
			strangers := attack(t, tt.name, address, attackers, n, true)
			other := b.connects(url, elsewhere)
			same := b.connects(url, attackers)
			dials := b.dialTimes(20)
			goroutines, files := runtime.NumGoroutine()-before, openFiles(t)
			came := strangers.stop()
			t.Logf("an agent connects in %v at an address of its own, in %v at theirs, in %v without them; dials: %v, at worst %v; "+
				"%d connections, %d refused; %d goroutines, %d files", other, same, calm, dials[len(dials)/2], dials[len(dials)-1],
				came, refused.Load(), goroutines, files)
			if slack := 20 * calm; other > slowdown*2*time.Second+slack || same > slowdown*10*time.Second+slack {
				t.Errorf("an agent was kept out for %v, want 2 s, or for %v beside the strangers, want 10 s", other, same)
			}
			if worst := dials[len(dials)-1]; worst > slowdown*time.Second+20*calm {
				t.Errorf("a dial took %v", worst)
			}
			if goroutines > 6000 || files > 6000 { // a place, and four that wait for it
				t.Errorf("the strangers cost %d goroutines and %d files", goroutines, files)
			}
		})
	}
}

// connects returns how long an agent that comes from the source needs to enrol
// and to have a session.
func (b *bed) connects(address, source string) time.Duration {
	b.t.Helper()
	if len(b.up) > 0 {
		b.t.Fatal("there is a session too many")
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	began := time.Now()
	b.agent(&tunnel.Agent{Servers: []string{address}, Dial: dialer.DialContext})
	return time.Since(began)
}

// dialTimes are those of n dials, in order.
func (b *bed) dialTimes(n int) (took []time.Duration) {
	b.t.Helper()
	for range n {
		began := time.Now()
		b.echo().Close()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(files)
}

// An agent whose connection is closed in the handshake says what that may mean.
func TestHandshakeCutText(t *testing.T) {
	s := proxytest.Serve(listen(t), func(_ context.Context, conn net.Conn) { conn.Close() })
	defer s.Close()
	failed := make(chan error, 1)
	a := &tunnel.Agent{
		Servers: []string{s.Addr()}, Credentials: &tunnel.MemoryCredentials{},
		Invitation: func(context.Context) (tunnel.Invitation, error) {
			return tunnel.Invitation{Cluster: testCluster, Token: "x", Pin: "sha256:" + strings.Repeat("0", 64)}, nil
		},
		Hooks: tunnel.AgentHooks{Failed: func(_ string, err error, _ time.Duration) {
			select {
			case failed <- err:
			default:
			}
		}},
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	err := <-failed
	stop()
	<-ran
	if codeOf(err) != tunnel.CodeLost || !strings.Contains(err.Error(), "TLS handshake: the server closed the connection: it may be overloaded") {
		t.Errorf("got %v, want what happened", err)
	}
}
