package tunnel_test

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

// serving is how many sessions each replica has.
func (r *replicas) serving() map[string]int {
	n := map[string]int{}
	for name, b := range r.beds {
		n[name] = len(b.sessions())
	}
	return n
}

// TestBalance: a replica that comes late gets its share of sessions, while dials go on and
// connections stay.
func TestBalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 60
		r := newReplicas(t, "a", "b")
		r.mesh()
		for range agents {
			r.beds["a"].start(&tunnel.Agent{Servers: []string{"a:1", "b:1", "c:1"}})
		}
		for slices.Max(slices.Collect(maps.Values(r.serving()))) < agents || slices.Min(slices.Collect(maps.Values(r.serving()))) < agents {
			time.Sleep(time.Second)
		}
		var conns []net.Conn
		for range 20 {
			conns = append(conns, r.beds["a"].echo(), r.beds["b"].echo())
		}
		r.members.set("a:1", "b:1", "c:1")
		r.serve(&tunnel.Server{Name: "c"})
		r.mesh()

		const most = 2*agents/3 + 2*agents/3/8 + 8 + 3 // what the others say may be 1/16 off
		for began := time.Now(); slices.Max(slices.Collect(maps.Values(r.serving()))) > most; time.Sleep(time.Second) {
			if time.Since(began) > 15*time.Minute {
				t.Fatalf("got %v after a quarter of an hour, want %d at most", r.serving(), most)
			}
			for _, b := range r.beds {
				b.echo().Close()
			}
		}
		for _, conn := range conns {
			checkEcho(t, conn)
			conn.Close()
		}
		time.Sleep(time.Minute) // agents that were just asked to leave find another server
		settled := r.serving()
		time.Sleep(10 * time.Minute)
		if now := r.serving(); !maps.Equal(now, settled) || now["a"]+now["b"]+now["c"] != 2*agents {
			t.Errorf("got %v after %v, want all sessions, and peace", now, settled)
		}
	})
}

// TestBalanceKeeps: sessions that have nothing beside them stay.
func TestBalanceKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.mesh()
		for range 40 {
			r.at("a", &tunnel.Agent{})
		}
		before := r.beds["a"].sessions()
		time.Sleep(10 * time.Minute)
		if got := r.beds["a"].sessions(); len(got) != 40 || got[0].ID != before[0].ID || got[39].ID != before[39].ID {
			t.Errorf("got %d sessions, want the 40 of before", len(got))
		}
	})
}

// TestBalanceRaw: an agent is asked to move when another replica says that it has far fewer
// sessions, and not for what can't be.
func TestBalanceRaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a")
		a := r.beds["a"]
		controls := r.raw("b", serveRaw(0, 42))
		r.members.set("a:1", "b:1")
		peer := <-controls
		_, session := a.rawSessionAt("a:1", a.enrolledAt("a:1")) // the first is asked first
		control, err := session.Open(t.Context(), rawHello())
		if err != nil {
			t.Fatal(err)
		}
		const agents = 41
		for range agents - 1 {
			a.start(&tunnel.Agent{Servers: []string{"a:1"}})
		}
		for len(a.sessions()) < agents {
			time.Sleep(time.Second)
		}
		isAsked := func() bool {
			control.SetReadDeadline(time.Now().Add(time.Minute))
			for {
				switch kind, _, err := readRaw(control); {
				case kind == 11:
					return true
				case err != nil:
					return false
				}
			}
		}
		for _, tt := range []struct {
			load []byte
			want bool
		}{
			{nil, false},
			{rawMessage(71, uint16(16), uint64(1<<63)), false},
			{rawMessage(71, uint16(16), uint64(1<<64-1)), false},
			{rawMessage(71, uint16(16), uint64(30)), false},
			{rawMessage(71), true}, // zero
		} {
			if _, err := peer.Write(tt.load); err != nil {
				t.Fatal(err)
			}
			if got := isAsked(); got != tt.want {
				t.Errorf("after %x: asked to move: %t, want %t", tt.load, got, tt.want)
			}
		}
		time.Sleep(5 * time.Minute) // all are asked
		if n := len(a.sessions()); n != agents {
			t.Errorf("got %d sessions, want all %d: none has another one", n, agents)
		}
		session.Close()
		synctest.Wait()
		a.echo().Close()
	})
}

// TestMove: an agent whom both servers ask at once leaves one of them, once it has found
// a third.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		store := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: store}).stop()
		a := &tunnel.Agent{Credentials: store, Servers: []string{"x:1", "y:1", "z:1"}}
		var controls []*mux.Stream
		accept := func(name string) {
			l, err := b.w.Listen(t.Context(), name+":1")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close() // the session stays
			if name == "x" {
				b.start(a)
			}
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			session, control, err := tunnel.RawServer(t.Context(), conn, b.s.Authority)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { session.Close() })
			if _, err := control.Write(tunnel.RawWelcome(b.s.Authority, name, "other")); err != nil {
				t.Fatal(err)
			}
			controls = append(controls, control)
		}
		move := rawMessage(11)
		accept("x")
		controls[0].Write(move) // it has no other session
		time.Sleep(time.Hour)
		accept("y")
		time.Sleep(time.Minute)
		for _, c := range controls {
			c.Write(move)
		}
		said := func() (all []string) {
			for i, c := range controls {
				c.SetReadDeadline(time.Now().Add(time.Minute))
				if kind, _, err := readRaw(c); err == nil {
					all = append(all, fmt.Sprint(i, " ", kind))
				}
			}
			return all
		}
		if left := said(); left != nil {
			t.Errorf("got %q before there is another server, want nothing", left)
		}
		accept("z")
		if left := said(); len(left) != 1 || !strings.HasSuffix(left[0], " 4") || strings.HasPrefix(left[0], "2") {
			t.Errorf("got %q, want DRAIN from one of the first two", left)
		}
	})
}
