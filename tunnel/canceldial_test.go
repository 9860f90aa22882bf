package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

// blackhole is a target that answers nobody, and how many dials to it are under
// way.
type blackhole struct{ dials, began atomic.Int64 }

func (b *blackhole) targets() tunnel.Targets {
	n := &targettest.Network{Hosts: map[string]string{"*": "192.0.2.1"}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if _, port, _ := net.SplitHostPort(address); port != "3" {
			return dialTest(ctx, network, address)
		}
		b.began.Add(1)
		b.dials.Add(1)
		defer b.dials.Add(-1)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	return *targetsThrough(n, tunnel.Targets{Allow: []string{"*:1-100"}})
}

// endings are what a caller does while its dial is under way, and whether that is
// its end.
var endings = []struct {
	name string
	do   func(*mux.Stream)
	ends bool
}{
	{"nothing", func(*mux.Stream) {}, false},
	{"data", func(s *mux.Stream) { s.Write([]byte("early")) }, false},
	{"an end", func(s *mux.Stream) { s.CloseWrite() }, false},
	{"data and an end", func(s *mux.Stream) { s.Write([]byte("early")); s.CloseWrite() }, false},
	{"a reset", func(s *mux.Stream) { s.Reset(0) }, true},
	{"data and a reset", func(s *mux.Stream) { s.Write([]byte("early")); synctest.Wait(); s.Reset(0) }, true},
	{"much data and a reset", func(s *mux.Stream) { s.Write(make([]byte, 200<<10)); synctest.Wait(); s.Reset(0) }, true},
	{"an end, then a reset", func(s *mux.Stream) { s.CloseWrite(); synctest.Wait(); s.Reset(0) }, true},
	{"end and reset", func(s *mux.Stream) { s.Close() }, true},
	{"data, end and reset", func(s *mux.Stream) { s.Write([]byte("early")); s.Close() }, true},
}

// A dial at the agent ends with its stream, and with nothing less.
func TestResetEndsDial(t *testing.T) {
	dial := rawMessage(16, uint16(6), []byte("tcp"), uint16(5), []byte("x:3"))
	for _, tt := range endings {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{})
				store := &tunnel.MemoryCredentials{}
				b.agent(&tunnel.Agent{Credentials: store}).stop()
				var hole blackhole
				session, _ := b.rawServerOf(&tunnel.Agent{Credentials: store, Targets: hole.targets()})
				st := open(t, session, dial)
				hole.expect(t, st, tt.do, tt.ends)
			})
		})
	}
}

// The same when a replica passes it on.
func TestResetEndsForwardedDial(t *testing.T) {
	forward := rawMessage(66, uint16(7), []byte(testCluster), uint16(6), []byte("tcp"), uint16(5), []byte("x:3"))
	for _, tt := range endings {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{})
				var hole blackhole
				b.agent(&tunnel.Agent{Targets: hole.targets()})
				c, err := tunnel.ServerCredentials(b.s.Authority)
				if err != nil {
					t.Fatal(err)
				}
				session := b.rawPeer(c)
				control := open(t, session, rawPeerHello("b"))
				if kind, _, err := readRaw(control); kind != 2 || err != nil {
					t.Fatalf("got %d, %v, want WELCOME", kind, err)
				}
				st := open(t, session, forward)
				hole.expect(t, st, tt.do, tt.ends)
			})
		})
	}
}

func (b *blackhole) expect(t *testing.T, st *mux.Stream, do func(*mux.Stream), ends bool) {
	t.Helper()
	synctest.Wait()
	if b.dials.Load() != 1 {
		t.Fatalf("got %d dials, want one", b.dials.Load())
	}
	do(st)
	synctest.Wait()
	if ended := b.dials.Load() == 0; ended != ends {
		t.Errorf("got the end of the dial %v, want %v", ended, ends)
	}
	if !ends {
		st.Reset(0)
	}
}

// A dial whose context ends is ended at the agent, whoever is between.
func TestCancelledDialEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.mesh()
		var hole blackhole
		r.at("b", &tunnel.Agent{Targets: hole.targets()})
		for _, from := range []string{"a", "b"} {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				_, err := r.beds[from].s.Dialer(testCluster).DialContext(ctx, "tcp", "x:3")
				done <- err
			}()
			synctest.Wait()
			if hole.dials.Load() != 1 {
				t.Fatalf("from %s: got %d dials, want one", from, hole.dials.Load())
			}
			cancel()
			if err := <-done; codeOf(err) != tunnel.CodeCanceled {
				t.Errorf("from %s: got %v, want canceled", from, err)
			}
			synctest.Wait()
			if hole.dials.Load() != 0 {
				t.Errorf("from %s: the dial goes on at the agent", from)
			}
		}
	})
}

// What was ended before the agent came to it is not dialed.
func TestResetBeforeDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		store := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: store}).stop()
		var hole blackhole
		session, _ := b.rawServerOf(&tunnel.Agent{Credentials: store, Targets: hole.targets()})
		dial := rawMessage(16, uint16(6), []byte("tcp"), uint16(5), []byte("x:3"))
		st := open(t, session, dial[:4])
		synctest.Wait()
		st.Write(dial[4:])
		st.Close()
		synctest.Wait()
		if n := hole.dials.Load(); n != 0 {
			t.Errorf("got %d dials, want none", n)
		}
	})
}

// A caller that has closed its connection does not keep one to a target that
// neither reads, nor writes, nor ends.
func TestClosedConnectionLeavesTarget(t *testing.T) {
	h := newHop(t)
	h.eachWay(t, func(t *testing.T, b *bed) {
		for _, tt := range []struct {
			name  string
			leave func(*mux.Stream)
			reset bool
		}{
			{"close", func(s *mux.Stream) { s.Close() }, false},
			{"half-close, then close", func(s *mux.Stream) { s.CloseWrite(); s.Close() }, false},
			{"reset", func(s *mux.Stream) { s.Reset(0) }, true},
		} {
			t.Run(tt.name, func(t *testing.T) {
				conn, target := h.pair(b)
				conn.Write([]byte("bye"))
				if _, err := io.ReadFull(target, make([]byte, 3)); err != nil {
					t.Fatal(err)
				}
				tt.leave(conn.(*mux.Stream))
				// The target does not end, and yet the agent has no stream.
				awaitNoStream(t)
				_, err := target.Read(make([]byte, 1))
				if tt.reset != errors.Is(err, syscall.ECONNRESET) || !tt.reset && err != io.EOF {
					t.Errorf("the target got %v, reset %v", err, tt.reset)
				}
			})
		}
	})
}

// Nor a caller that breaks off while the target takes nothing.
func TestResetWhileTargetStalls(t *testing.T) {
	h := newHop(t)
	h.eachWay(t, func(t *testing.T, b *bed) {
		conn, target := h.pair(b)
		conn.SetWriteDeadline(time.Now().Add(time.Second)) // until nothing more is taken
		io.Copy(conn, zeros{})
		conn.(*mux.Stream).Reset(6)
		awaitNoStream(t)
		if _, err := io.Copy(io.Discard, target); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the target got %v, want a reset", err)
		}
	})
}

// eachWay runs f with the server that has the agent, and with one that forwards.
func (h *hop) eachWay(t *testing.T, f func(t *testing.T, b *bed)) {
	for name, b := range map[string]*bed{"local": h.far, "forwarded": h.near} {
		t.Run(name, func(t *testing.T) { f(t, b) })
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// awaitNoStream waits until no agent of this process is at work for a stream.
func awaitNoStream(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); servedStreams() > 0; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("the agent serves %d streams still, want none", servedStreams())
		}
	}
}

func servedStreams() int {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("tunnel.(*link).serveStream("))
}
