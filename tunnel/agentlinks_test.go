package tunnel_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// An agent has sessions with two servers where there are two, by whatever way
// it finds them, and reports no failure on the way.
func TestTwoSessions(t *testing.T) {
	for _, tt := range []struct {
		name    string
		up      []string
		servers []string // of the agent; nil: the balancer
		want    int
		seeks   bool // for ever
	}{
		{"one", []string{"a"}, nil, 1, false},
		{"two", []string{"a", "b"}, nil, 2, false},
		{"three", []string{"a", "b", "c"}, nil, 2, false},
		{"two addresses", []string{"a", "b"}, []string{"a:1", "b:1"}, 2, false},
		{"three, and one address", []string{"a", "b", "c"}, []string{"b:1"}, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMesh(t, tt.up...)
				a := m.agent(&tunnel.Agent{Servers: tt.servers, Hooks: tunnel.AgentHooks{
					Failed: func(server string, err error, _ time.Duration) { t.Errorf("failed at %s: %v", server, err) },
				}})
				time.Sleep(2 * time.Minute)
				got := serving(a)
				if len(got) != tt.want || len(slices.Compact(got)) != tt.want {
					t.Errorf("got sessions with %q, want %d", got, tt.want)
				}
				if status := a.Status(); !status.Connected || status.LastError != "" || len(status.Sessions) != tt.want {
					t.Errorf("got %+v, want it connected", status)
				}
				if n := m.dials(10 * time.Minute); (n > 0) != tt.seeks || n > 100 {
					t.Errorf("got %d dials in 10 minutes, want some: %v", n, tt.seeks)
				}
			})
		})
	}
}

// A server that says no names, an older one, has one session, and so has one
// that says none which an agent would take.
func TestOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		store := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: store}).stop()
		session, control := b.rawServer(store)
		before := len(b.w.times())
		for _, say := range [][]byte{
			nil,
			rawMessage(10),
			rawMessage(10, uint16(18), []byte("a"), uint16(18), []byte("a")),
			rawMessage(10, uint16(18), []byte("a"), uint16(18), []byte(strings.Repeat("b", 65)), uint16(18), []byte{}),
		} {
			if _, err := control.Write(say); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if n := len(b.w.times()) - before; n > 0 || session.Err() != nil {
				t.Errorf("after %q: got %d dials more, %v, want none", say, n, session.Err())
			}
		}
	})
}

// Names of servers are kept within reason.
func TestServerNames(t *testing.T) {
	long := strings.Repeat("x", 64)
	if got, want := tunnel.ServerNames("a", "", long, long+"x", "b"), []string{"a", long, "b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := tunnel.ServerNames(make100("a")...); len(got) != 100 {
		t.Errorf("got %d names, want 100", len(got))
	}
}

func make100(name string) (names []string) {
	for i := range 150 {
		names = append(names, name+strings.Repeat("a", i%50))
	}
	return names
}

// Another server is sought once it is told of, not before, and its session is
// kept when it is told of no more.
func TestServersTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "a")
		m.balance(alternate())
		a := m.agent(&tunnel.Agent{})
		m.meets(a, "a")
		if n := m.dials(time.Hour); n != 0 {
			t.Errorf("got %d dials with one server, want none", n)
		}
		b := m.serve("b", &tunnel.Server{})
		if took := m.meets(a, "a", "b"); took > 6*time.Second {
			t.Errorf("the agent was at the second server after %v", took)
		}
		m.set("b", nil)
		if n := m.dials(time.Hour); n != 0 || !slices.Equal(serving(a), []string{"a", "b"}) {
			t.Errorf("got %d dials, sessions with %q after the names shrank, want both kept", n, serving(a))
		}
		b.s.Close()
		if n := m.dials(time.Hour); n != 0 || !slices.Equal(serving(a), []string{"a"}) {
			t.Errorf("got %d dials, sessions with %q after the second ended, want the first alone", n, serving(a))
		}
	})
}

// A load balancer that always gives the same server: the agent settles into
// slow tries and calls nothing an error. A new name makes it quick again.
func TestAlwaysTheSameServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures sync.Map
		m := newMesh(t, "a", "b")
		m.balance(func([]string) string { return "a" })
		a := m.agent(&tunnel.Agent{Hooks: tunnel.AgentHooks{Failed: func(_ string, err error, _ time.Duration) { failures.Store(err.Error(), true) }}})
		m.meets(a, "a")
		if n := m.dials(time.Minute); n < 8 || n > 40 {
			t.Errorf("got %d dials in the first minute, want a dozen or two", n)
		}
		time.Sleep(time.Hour)
		if n := m.dials(10 * time.Hour); n < 160 || n > 360 {
			t.Errorf("got %d dials in ten hours, want one each 150 s", n)
		}
		failures.Range(func(err, _ any) bool {
			t.Errorf("reported %v", err)
			return true
		})
		if status := a.Status(); !status.Connected || status.LastError != "" {
			t.Errorf("got %+v, want it connected and well", status)
		}
		m.serve("c", &tunnel.Server{})
		if n := m.dials(20 * time.Second); n < 4 {
			t.Errorf("got %d dials in the 20 s after a new name, want some", n)
		}
		m.balance(nil)
		time.Sleep(2 * time.Minute)
		if got := serving(a); len(got) != 2 {
			t.Errorf("got sessions with %q, want two", got)
		}
	})
}

// News that come all the time don't put the search off.
func TestServersToldOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "a", "b")
		m.balance(alternate())
		first := m.bed("a")
		a := m.agent(&tunnel.Agent{Servers: []string{"a:1", balancer}})
		ctx, cancel := context.WithCancel(t.Context())
		var telling sync.WaitGroup
		telling.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				first.s.TellServers("a", strconv.Itoa(i))
				time.Sleep(100 * time.Millisecond)
			}
		})
		if took := m.meets(a, "a", "b"); took > 12*time.Second {
			t.Errorf("the agent was at the second server after %v", took)
		}
		cancel()
		telling.Wait()
	})
}

// After a session has ended the search is as quick as the first one was,
// however long that took.
func TestSearchBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "a", "b")
		m.balance(func([]string) string { return "a" })
		a := m.agent(&tunnel.Agent{})
		m.meets(a, "a")
		time.Sleep(20 * time.Minute)
		m.balance(func([]string) string { return "b" })
		m.meets(a, "a", "b")
		time.Sleep(10 * time.Minute)
		var picks atomic.Int32
		m.balance(func([]string) string {
			if picks.Add(1) <= 5 {
				return "a"
			}
			return "b"
		})
		m.bed("b").s.Close() // of which nobody tells the other
		synctest.Wait()
		newBedAt(t, &tunnel.Server{Name: "b", Authority: m.authority, Store: &m.store}, &m.wires, "b:1")
		if took := m.meets(a, "a", "b"); took > 13*time.Second { // 4 s, and 1 s to 2.5 s
			t.Errorf("the next session was there after %v", took)
		}
	})
}

// A server that drains says its own name all the same to who comes.
func TestWelcomeOfDrainingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "a", "b")
		m.bed("a").s.TellServers("b")
		a := m.agent(&tunnel.Agent{Servers: []string{"a:1", "b:1"}})
		m.meets(a, "a")
		if n := m.dials(time.Minute); n != 0 {
			t.Errorf("got %d dials, want none", n)
		}
	})
}

// The context ends while the second server is sought, by a dial that hangs.
func TestRunEndsWhileSeeking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "a", "b")
		hangs := &hangingDials{mesh: m, hung: make(chan struct{}, 100)}
		hangs.after = 2 // an enrolment and a session
		a := m.bed("a").start(&tunnel.Agent{Dial: hangs.Dial, HandshakeTimeout: time.Hour, Servers: []string{balancer}})
		<-hangs.hung
		if got := serving(a); len(got) != 1 {
			t.Errorf("got sessions with %q, want one", got)
		}
		began := time.Now()
		a.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("Run took %v to end", took)
		}
	})
}

// hangingDials hang once some were made.
type hangingDials struct {
	*mesh
	hung chan struct{}

	mu    sync.Mutex // guards the fields below
	after int
	until chan struct{} // nil: for good
}

func (h *hangingDials) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	h.mu.Lock()
	h.after--
	hang, until := h.after < 0, h.until
	h.mu.Unlock()
	if hang {
		h.hung <- struct{}{}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-until:
		}
	}
	return h.mesh.Dial(ctx, network, address)
}
