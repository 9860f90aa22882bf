package tunnel_test

import (
	"cmp"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

const (
	kindAsk     = 64
	kindForward = 66
)

// raw has a replica at the address of the name which answers the messages of
// its peers by a function. The control streams of its sessions come by the channel.
func (r *replicas) raw(name string, answer func(kind uint16, st *mux.Stream, session *mux.Session)) (controls <-chan *mux.Stream) {
	r.t.Helper()
	greeted := make(chan *mux.Stream, 100)
	l, err := r.w.Listen(r.t.Context(), name+":1")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			session, control, err := tunnel.RawServer(context.Background(), conn, r.Authority)
			if err != nil {
				conn.Close()
				continue
			}
			r.t.Cleanup(func() { session.Close() })
			control.Write(rawPeerWelcome(name))
			greeted <- control
			go func() {
				for {
					st, err := session.Accept(context.Background())
					if err != nil {
						return
					}
					go func() {
						defer st.Close()
						if kind, _, err := readRaw(st); err == nil {
							answer(kind, st, session)
						}
					}()
				}
			}()
		}
	}()
	return greeted
}

// have answers ASK.
func have(st *mux.Stream, code uint64) {
	st.Write(rawMessage(65, uint16(1), code))
}

// serveRaw is what a replica does that has an agent, or says by the code what
// it has instead, after a while.
func serveRaw(after time.Duration, code uint64) func(uint16, *mux.Stream, *mux.Session) {
	return func(kind uint16, st *mux.Stream, session *mux.Session) {
		switch kind {
		case kindAsk:
			select {
			case <-time.After(after):
				have(st, code)
			case <-session.Done():
			}
		case kindForward:
			st.Write(rawMessage(17))
			io.Copy(st, st)
		}
	}
}

// A replica that is alive, and slow to say whether it has an agent, is waited
// for; for how long, depends on who else there is.
func TestBusyPeer(t *testing.T) {
	never := time.Hour
	for _, tt := range []struct {
		name    string
		b, c    func(uint16, *mux.Stream, *mux.Session)
		timeout time.Duration // of the dial
		code    tunnel.Code
		took    time.Duration
	}{
		{"it has one, after a while", serveRaw(9*time.Second, 0), serveRaw(0, 42), time.Minute, 0, 9 * time.Second},
		{"it has none, after a while", serveRaw(9*time.Second, 42), serveRaw(0, 42), time.Minute, tunnel.CodeNoAgent, 9 * time.Second},
		{"it never says so", serveRaw(never, 0), serveRaw(0, 42), time.Minute, tunnel.CodeNoAgent, 15 * time.Second},
		{"the caller does not wait", serveRaw(never, 0), serveRaw(0, 42), 4 * time.Second, tunnel.CodeTimeout, 4 * time.Second},
		{"another has one", serveRaw(never, 0), serveRaw(time.Second, 0), time.Minute, 0, time.Second},
		{"another has one that does not answer now", serveRaw(never, 0), serveRaw(0, 5), time.Minute, 0, 2 * time.Second},
		{"nobody has one", serveRaw(0, 42), serveRaw(0, 8), time.Minute, tunnel.CodeNoAgent, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, "a")
				r.raw("b", tt.b)
				r.raw("c", tt.c)
				r.members.set("a:1", "b:1", "c:1")
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				began := time.Now()
				conn, err := r.beds["a"].s.Dialer(testCluster).DialContext(ctx, "tcp", "echo:7")
				took := time.Since(began)
				if took < tt.took || took > tt.took+200*time.Millisecond || tt.code != 0 && codeOf(err) != tt.code || tt.code == 0 && err != nil {
					t.Fatalf("got %v after %v, want code %d after %v", err, took, tt.code, tt.took)
				}
				if conn != nil {
					checkEcho(t, conn)
					conn.Close()
				}
			})
		})
	}
}

// A busy replica does not keep a dial from the agents here that did not answer
// a probe.
func TestBusyPeerAndSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a")
		r.raw("b", serveRaw(0, 42))
		r.raw("c", serveRaw(time.Hour, 42))
		r.members.set("a:1", "b:1")
		r.staleAgent("a")
		time.Sleep(2 * time.Second)
		a := r.beds["a"]
		dial := func() {
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
			defer cancel()
			if _, err := a.s.Dialer(testCluster).DialContext(ctx, "tcp", "echo:7"); codeOf(err) != tunnel.CodeTimeout {
				t.Errorf("got %v, want to wait for the agent", err)
			}
		}
		dial() // which finds out
		r.members.set("a:1", "b:1", "c:1")
		synctest.Wait()
		done := make(chan struct{})
		go func() { defer close(done); dial() }()
		for at, want := range []int{0, 0, 1} {
			synctest.Wait()
			if got := a.sessions()[0].Streams; got != want {
				t.Errorf("got %d streams to the agent after %d s, want %d", got, at, want)
			}
			time.Sleep(time.Second)
		}
		<-done
	})
}

// A peer that is being connected for the first time is waited for; one that
// can't be is not, and from then on never.
func TestDialMeetsPeers(t *testing.T) {
	for _, tt := range []struct {
		name string
		took time.Duration // by the connection
		err  error         // of it
		code tunnel.Code
		want [2]time.Duration // of one dial, and then another
	}{
		{"it comes", 4 * time.Second, nil, 0, [2]time.Duration{4 * time.Second}},
		{"it is not there", 4 * time.Second, syscall.ECONNREFUSED, tunnel.CodeNoAgent, [2]time.Duration{4 * time.Second}},
		{"it does not answer", 8 * time.Second, syscall.ETIMEDOUT, tunnel.CodeNoAgent, [2]time.Duration{5 * time.Second, 3 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, "b")
				r.at("b", &tunnel.Agent{})
				r.members.set("a:1", "b:1")
				dials := r.w.times()
				a := newBedAt(t, &tunnel.Server{Name: "a", Authority: r.Authority, Peers: r.members, PeerDial: func(ctx context.Context, _, address string) (net.Conn, error) {
					select {
					case <-time.After(tt.took):
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					if tt.err != nil && address == "b:1" {
						return nil, tt.err
					}
					return r.w.Dial(ctx, "tcp", address)
				}}, r.w, "a:1")
				synctest.Wait()
				for _, want := range tt.want {
					began := time.Now()
					conn, err := a.dial("echo:7")
					took := time.Since(began)
					if tt.code == 0 && err != nil || tt.code != 0 && codeOf(err) != tt.code || took < want || took > want+200*time.Millisecond {
						t.Errorf("got %v after %v, want code %d after %v; %d dials", err, took, tt.code, want, len(r.w.times())-len(dials))
					}
					if conn != nil {
						conn.Close()
					}
				}
			})
		})
	}
}

// A replica that has just begun is ready when it has met the others, or knows
// which it can not, and after ten seconds in any case.
func TestReadyWhenMet(t *testing.T) {
	pause := func(ctx context.Context, d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, tt := range []struct {
		name    string
		members time.Duration // until they are known
		fails   bool          // instead
		dial    time.Duration // until b is connected
		err     error         // instead
		ready   time.Duration
	}{
		{"all at once", 0, false, 0, nil, 0},
		{"the others are known late", 3 * time.Second, false, 0, nil, 3 * time.Second},
		{"they can not be known", 3 * time.Second, true, 0, nil, 3 * time.Second},
		{"one is far", 0, false, 4 * time.Second, nil, 4 * time.Second},
		{"one is not there", 0, false, 4 * time.Second, syscall.ECONNREFUSED, 4 * time.Second},
		{"one does not answer", 0, false, time.Minute, nil, 10 * time.Second},
		{"nobody says who they are", time.Minute, false, 0, nil, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, "b")
				b := newBedAt(t, &tunnel.Server{Name: "a", Authority: r.Authority, Peers: membershipFunc(func(ctx context.Context, set func(map[string]string)) error {
					if err := pause(ctx, tt.members); err != nil || tt.fails {
						return syscall.EHOSTUNREACH
					}
					set(withoutZones([]string{"a:1", "b:1"}))
					<-ctx.Done()
					return ctx.Err()
				}), PeerDial: func(ctx context.Context, _, address string) (net.Conn, error) {
					if address == "b:1" {
						if err := cmp.Or(pause(ctx, tt.dial), tt.err); err != nil {
							return nil, err
						}
					}
					return r.w.Dial(ctx, "tcp", address)
				}}, r.w, "a:1")
				h := b.s.StatusHandler()
				synctest.Wait()
				if tt.ready > 0 {
					checkHTTP(t, h, "GET", "/readyz", 503)
					time.Sleep(tt.ready - time.Second)
					checkHTTP(t, h, "GET", "/readyz", 503)
					time.Sleep(time.Second)
					synctest.Wait()
				}
				checkHTTP(t, h, "GET", "/readyz", 200)
			})
		})
	}
}

// A replica that said yes and was lost before it dialed is no reason to fail:
// the agent may have come to another one since that was asked.
func TestForwardRetriesLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a")
		var lost atomic.Bool
		asked := make(chan struct{})
		sayAsked := sync.OnceFunc(func() { close(asked) })
		r.raw("b", func(kind uint16, st *mux.Stream, session *mux.Session) {
			if kind == kindForward {
				lost.Store(true)
				session.Close()
				return
			}
			<-asked
			have(st, 0)
		})
		r.raw("c", func(kind uint16, st *mux.Stream, session *mux.Session) {
			if kind == kindAsk && !lost.Load() {
				have(st, 42)
				sayAsked()
				return
			}
			serveRaw(0, 0)(kind, st, session)
		})
		r.members.set("a:1", "b:1", "c:1")
		synctest.Wait()
		conn, err := r.beds["a"].dial("echo:7")
		if err != nil {
			t.Fatal(err)
		}
		checkEcho(t, conn)
		conn.Close()
		if !lost.Load() {
			t.Error("the first replica was not to dial")
		}
	})
}

// A session that was retired while its replica was asked, and has nothing else
// to wait for, is about to end: no dial is sent there to be cut.
func TestForwardNotOnSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a")
		a := r.beds["a"]
		r.raw("b", func(kind uint16, st *mux.Stream, session *mux.Session) {
			if kind != kindAsk {
				t.Error("the dial came to a session that is about to end")
				return
			}
			if err := a.s.SettlePeer(t.Context(), "b", 2); err != nil { // control and this
				t.Error(err)
			}
			have(st, 0)
		})
		r.raw("c", serveRaw(time.Second, 0))
		r.members.set("a:1", "b:1", "c:1")
		synctest.Wait()
		conn, err := a.dial("echo:7")
		if err != nil {
			t.Fatal(err)
		}
		checkEcho(t, conn)
		conn.Close()
	})
}
