package tunnel_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// TestBudget: a caller with 40 connections that nobody reads uses up 4 MiB of a Budget, at
// whichever program it waits. The caller learns why, and another one loses nothing.
func TestBudget(t *testing.T) {
	small := func() *tunnel.Budget { return &tunnel.Budget{Bytes: 4 << 20} }
	for _, tt := range []struct {
		name        string
		a, b, agent *tunnel.Budget // of the servers, of which b has the agent's session, and of the agent
		up          bool
		callerLearn string
	}{
		{name: "the caller does not read", a: small(), callerLearn: "reset here: too much waits that nobody reads"},
		{name: "the caller of a replica does not read, and its own has room", b: small(), callerLearn: "reset by the other end: too much waits that nobody reads"},
		{name: "the target does not read", agent: small(), up: true, callerLearn: "reset by the other end: too much waits that nobody reads"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ends := make(chan net.Conn, 1)
				r := newReplicas(t)
				r.members.all = []string{"a:1", "b:1"}
				r.serve(&tunnel.Server{Name: "a", Budget: tt.a})
				r.serve(&tunnel.Server{Name: "b", Budget: tt.b})
				r.mesh()
				r.at("b", &tunnel.Agent{Budget: tt.agent, Targets: lineTargets(ends)})
				dial := func(caller string) (near, far net.Conn) {
					near, err := r.beds["a"].s.Dialer(testCluster).DialContext(tunnel.WithCaller(t.Context(), caller), "tcp", "target:9")
					if err != nil {
						t.Fatal(err)
					}
					return near, <-ends
				}
				reader, end := dial("bob")
				modest, source := dial("carol")
				if tt.up {
					modest, source = source, modest
				}
				source.Write(make([]byte, 20<<10))
				var greedy []net.Conn
				for range 40 {
					near, far := dial("ann")
					greedy = append(greedy, near, far)
					if tt.up {
						near, far = far, near
					}
					go far.Write(make([]byte, 1<<20))
					time.Sleep(300 * time.Millisecond)
					go end.Write([]byte("x"))
					if _, err := io.ReadFull(reader, make([]byte, 1)); err != nil {
						t.Fatal("who reads: ", err)
					}
				}
				if _, err := io.ReadFull(modest, make([]byte, 20<<10)); err != nil {
					t.Error("who holds little: ", err)
				}
				reset := 0
				for i := 0; i < len(greedy); i += 2 {
					greedy[i].SetReadDeadline(time.Now().Add(time.Second))
					_, err := io.Copy(io.Discard, struct{ io.Reader }{greedy[i]})
					if errors.Is(err, os.ErrDeadlineExceeded) {
						continue
					}
					reset++
					if !errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), tt.callerLearn) {
						t.Errorf("the caller's error is %v, want %q, a reset and no close", err, tt.callerLearn)
					}
				}
				if reset < 20 {
					t.Errorf("%d of 40 connections were reset, want 20 at least", reset)
				}
				for _, conn := range append(greedy, modest, source, reader, end) {
					conn.Close()
				}
			})
		})
	}
}
