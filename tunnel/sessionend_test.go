package tunnel_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/test/targettest"
	"github.com/causewayproject/causeway/tunnel"
)

// A session is waited for until its last hook has returned, whoever ends it.
func TestEndIsWaitedFor(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(b *bed, a *agent) // returns when all is said to have ended
	}{
		{"Close", func(b *bed, _ *agent) { b.s.Close() }},
		{"Serve", func(b *bed, _ *agent) {
			b.stopServe()
			<-b.served
		}},
		{"Serve when the session was cut", func(b *bed, _ *agent) {
			b.w.cut()
			synctest.Wait()
			b.stopServe()
			<-b.served
		}},
		{"Run", func(_ *bed, a *agent) { a.stop() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var in, out atomic.Int32
				leave := make(chan struct{})
				gone := func() {
					if in.Load() != 1 {
						t.Error("disconnected before it was connected")
					}
					<-leave
					out.Add(1)
				}
				s := &tunnel.Server{Grace: -1}
				a := &tunnel.Agent{Grace: -1, FirstBackoff: time.Hour, MaxBackoff: time.Hour}
				if tt.name == "Run" {
					a.Hooks.Connected = func(string, tunnel.Identity) { in.Add(1) }
					a.Hooks.Disconnected = func(string, error) { gone() }
				} else {
					s.Hooks.Disconnected = func(tunnel.SessionInfo, error) { gone() }
				}
				b := newBed(t, s)
				running := b.start(a)
				b.await()
				if tt.name != "Run" {
					in.Add(1)
				}
				synctest.Wait()
				ended := make(chan struct{})
				go func() {
					tt.end(b, running)
					close(ended)
				}()
				time.Sleep(time.Minute)
				select {
				case <-ended:
					t.Error("it returned before the hook did")
				default:
				}
				close(leave)
				<-ended
				if out.Load() != 1 {
					t.Errorf("disconnected %d times, want once", out.Load())
				}
			})
		})
	}
}

// While the server deals with a message the next one waits.
func TestControlMessagesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		b := newBed(t, &tunnel.Server{Hooks: tunnel.Hooks{Refused: func(net.Addr, error) { <-block }}})
		_, session := b.rawSession(b.enrolled())
		control := open(t, session, rawHello())
		b.await()
		control.Write(rawMessage(5)) // RENEW, which is refused
		control.Write(rawMessage(4)) // DRAIN
		synctest.Wait()
		if got := b.sessions(); len(got) != 1 || got[0].Draining {
			t.Errorf("got %+v, want one that does not drain yet", got)
		}
		close(block)
		synctest.Wait()
		if got := b.sessions(); len(got) != 1 || !got[0].Draining {
			t.Errorf("got %+v, want one that drains", got)
		}
	})
}

// While an agent saves what it was told to trust the next message waits, streams
// do not, and the end of the session is seen to.
func TestSessionWhileSaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		creds := &slowCredentials{entered: make(chan struct{}), leave: make(chan struct{})}
		var payloads atomic.Int32
		dialing, givenUp := make(chan struct{}, 10), make(chan struct{}, 10)
		n := &targettest.Network{Hosts: map[string]string{"*": "192.0.2.1"}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if _, port, _ := net.SplitHostPort(address); port != "3" {
				return dialTest(ctx, network, address)
			}
			dialing <- struct{}{}
			<-ctx.Done()
			givenUp <- struct{}{}
			return nil, ctx.Err()
		}}
		b.agent(&tunnel.Agent{
			Credentials: creds, FirstBackoff: time.Hour, MaxBackoff: time.Hour,
			Targets: *targetsThrough(n, tunnel.Targets{Allow: []string{"*:1-100"}}),
			Payload: func(context.Context, tunnel.Payload) error { payloads.Add(1); return nil },
		})
		creds.slow.Store(true)
		old := b.s.Authority
		if err := b.s.SetAuthority(&tunnel.Authority{Certificate: old.Certificate, Key: old.Key, Trusted: append(old.Trusted, newAuthority(t).Certificate)}); err != nil {
			t.Fatal(err)
		}
		<-creds.entered
		pushed := make(chan error, 1)
		go func() { pushed <- b.s.Push(t.Context(), testCluster, tunnel.Payload{Name: "a"}) }()
		synctest.Wait()
		if n := payloads.Load(); n != 0 {
			t.Errorf("got %d payloads, want none yet", n)
		}
		b.echo().Close()
		go b.dial("x:3")
		<-dialing
		b.w.cut()
		synctest.Wait()
		if len(givenUp) != 1 {
			t.Error("the dial goes on for a session that has ended")
		}
		close(creds.leave)
		if err := <-pushed; codeOf(err) != tunnel.CodeLost {
			t.Errorf("got %v, want lost", err)
		}
	})
}

// The dials that end with their session are failed ones in its last figures.
func TestDialsEndWithSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dials = 100
		last := make(chan tunnel.SessionInfo, 1)
		b := newBed(t, &tunnel.Server{Hooks: tunnel.Hooks{Disconnected: func(i tunnel.SessionInfo, _ error) { last <- i }}})
		var hole blackhole
		b.agent(&tunnel.Agent{FirstBackoff: time.Hour, MaxBackoff: time.Hour, Targets: hole.targets()})
		b.echo().Close()
		failed := make(chan error, dials)
		for range dials {
			go func() {
				_, err := b.dial("x:3")
				failed <- err
			}()
		}
		synctest.Wait()
		b.w.cut()
		for range dials {
			if err := <-failed; codeOf(err) != tunnel.CodeLost {
				t.Errorf("got %v, want lost", err)
			}
		}
		reported := <-last
		kept := b.s.Status().Clusters[0].Last
		for _, got := range []tunnel.SessionInfo{reported, kept.SessionInfo} {
			if got.Dials != dials+1 || got.Failed != dials || got.Denied != 0 {
				t.Errorf("got %d dials, %d failed, %d denied; want %d, %d, 0", got.Dials, got.Failed, got.Denied, dials+1, dials)
			}
		}
	})
}
