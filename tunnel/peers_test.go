package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// A replica finds its own address among those of all by itself, and does not
// dial it in a loop; two addresses of one other are one replica.
func TestOwnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		also, err := r.w.Listen(t.Context(), "also-b:1")
		if err != nil {
			t.Fatal(err)
		}
		r.beds["b"].serveAlso(also)
		r.members.set("a:1", "b:1", "also-b:1")
		r.mesh()
		time.Sleep(time.Minute)
		for _, name := range []string{"a", "b"} {
			var names []string
			for _, row := range r.beds[name].s.Fleet(t.Context()) {
				names = append(names, row.Name)
				if row.Self != (row.Name == name) || !row.Connected || row.LastError != "" {
					t.Errorf("%s sees %+v, want itself and the other, connected", name, row)
				}
			}
			if want := []string{name, map[string]string{"a": "b", "b": "a"}[name]}; !slices.Equal(names, want) {
				t.Errorf("%s sees %q, want %q", name, names, want)
			}
		}
		r.beds["a"].listen("a", "b")
		before := len(r.w.times())
		time.Sleep(3 * time.Minute)
		if n := len(r.w.times()) - before; n != 0 {
			t.Errorf("got %d more connections, want none", n)
		}
		time.Sleep(3 * time.Minute)
		if n := len(r.w.times()) - before; n != 3 {
			t.Errorf("got %d more connections, want one to each address of a replica itself", n)
		}
	})
}

// Two replicas of one name are a mistake, which is said and heals.
func TestSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a")
		b := newBedAt(t, &tunnel.Server{Name: "a", Authority: r.Authority}, r.w, "b:1")
		r.members.set("a:1", "b:1")
		time.Sleep(time.Minute)
		fleet := r.beds["a"].s.Fleet(t.Context())
		if len(fleet) != 2 || fleet[1].Connected || !strings.Contains(fleet[1].LastError, "Name") {
			t.Errorf("got %+v, want an error that names the field", fleet)
		}
		b.s.Close()
		r.serve(&tunnel.Server{Name: "b"})
		r.mesh()
	})
}

// Replicas come, go and come back: who is there is kept up, and agents hear of
// it.
func TestMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.mesh()
		a := r.beds["a"]
		servers := a.listen("a", "b")
		steps := []struct {
			name   string
			change func()
			want   []string
		}{
			{"another comes", func() {
				r.members.set("a:1", "b:1", "c:1")
				r.serve(&tunnel.Server{Name: "c"})
			}, []string{"a", "b", "c"}},
			{"one leaves", func() { r.members.set("a:1", "c:1") }, []string{"a", "c"}},
			{"it returns", func() { r.members.set("a:1", "b:1", "c:1") }, []string{"a", "b", "c"}},
			{"one dies", func() { r.beds["c"].s.Close() }, []string{"a", "b"}},
			{"it starts again", func() { r.serve(&tunnel.Server{Name: "c"}) }, []string{"a", "b", "c"}},
			{"all others leave", func() { r.members.set() }, []string{"a"}},
		}
		for _, step := range steps {
			step.change()
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if got := connected(a.s); !slices.Equal(got, step.want) {
				t.Errorf("%s: got the replicas %q, want %q", step.name, got, step.want)
			}
			if got := servers(); !slices.Equal(got, step.want) {
				t.Errorf("%s: the agent was told %q, want %q", step.name, got, step.want)
			}
		}
	})
}

// listen is an agent without streams that notes which servers it is told of, at first the
// ones given.
func (b *bed) listen(first ...string) (last func() []string) {
	b.t.Helper()
	_, session := b.rawSessionAt(b.s.Name+":1", b.enrolledAt(b.s.Name+":1"))
	control, err := session.Open(b.t.Context(), rawHello())
	if err != nil {
		b.t.Fatal(err)
	}
	kind, _, told, err := readServers(control)
	if kind != 2 || err != nil || !slices.Equal(told, first) {
		b.t.Fatalf("got %d, %q, %v, want WELCOME and %q", kind, told, err, first)
	}
	b.await()
	control.Write(rawMessage(4)) // it takes no streams
	synctest.Wait()              // once the server has read that
	var mu sync.Mutex
	go func() {
		for {
			kind, _, names, err := readServers(control)
			if err != nil {
				return
			}
			mu.Lock()
			if kind == 10 {
				told = names
			}
			mu.Unlock()
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return told
	}
}

// A forward that is under way lives on when its replica leaves the list, and
// new ones go elsewhere.
func TestForwardOutlivesMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.mesh()
		r.at("b", &tunnel.Agent{})
		a := r.beds["a"]
		busy := a.echo()
		r.members.set("a:1")
		synctest.Wait()
		checkEcho(t, busy)
		if _, err := a.dial("echo:7"); codeOf(err) != tunnel.CodeNoAgent {
			t.Errorf("got %v, want no agent", err)
		}
		time.Sleep(time.Hour)
		checkEcho(t, busy)
		busy.Close()
		synctest.Wait()
		if n := r.beds["b"].sessions()[0].Streams; n != 0 {
			t.Errorf("got %d streams, want none", n)
		}
	})
}

// A replica that drains is left by its agents and its peers; what is under way
// by it, in both directions, lives to its grace, and it dials by its peers for
// as long as it was not shut down.
func TestDrainReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan error, 10)
		r := newReplicas(t, "a", "c")
		r.members.set("a:1", "b:1", "c:1")
		b := r.serve(&tunnel.Server{Name: "b", Grace: time.Minute, Hooks: tunnel.Hooks{
			PeerDisconnected: func(_ string, err error) { gone <- err },
		}})
		r.mesh()
		r.at("b", &tunnel.Agent{})
		a, c := r.beds["a"], r.beds["c"]
		aTold, bTold := a.listen("a", "b", "c"), b.listen("b", "a", "c")
		through := a.echo() // of a, by b
		b.stopServe()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got, want := aTold(), []string{"a", "c"}; !slices.Equal(got, want) {
			t.Errorf("the agents of another replica were told %q, want %q", got, want)
		}
		if got, want := bTold(), []string{"a", "c"}; !slices.Equal(got, want) {
			t.Errorf("the agents of the one that drains were told %q, want %q", got, want)
		}
		if got := row(a.s, "b"); !got.Draining || got.Connected {
			t.Errorf("got %+v, want draining", got)
		}
		if got := b.s.Fleet(t.Context())[0]; !got.Draining || got.Status.Ready {
			t.Errorf("got %+v, want draining and not ready", got)
		}
		r.at("c", &tunnel.Agent{})
		b.echo().Close() // by c
		fromB := b.echo()
		a.echo().Close() // by c, though b was remembered
		time.Sleep(45 * time.Second)
		checkEcho(t, through)
		time.Sleep(20 * time.Second)
		if _, err := through.Read(make([]byte, 1)); err == nil {
			t.Error("a stream outlives the grace")
		}
		if err := <-b.served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		checkEcho(t, fromB)
		fromB.Close()
		b.echo().Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if _, err := b.dial("echo:7"); codeOf(err) != tunnel.CodeClosed {
			t.Errorf("got %v, want closed", err)
		}
		for range 2 {
			if err := <-gone; err != nil {
				t.Errorf("a session with a peer ended with %v, want in order", err)
			}
		}
		c.echo().Close()
	})
}

// Shutdown waits for what was forwarded, for as long as its context allows.
func TestShutdownWaitsForForwards(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprint(patient), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, "a", "b")
				r.mesh()
				r.at("b", &tunnel.Agent{})
				a := r.beds["a"]
				busy := a.echo()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				down := make(chan error, 1)
				go func() { down <- a.s.Shutdown(ctx) }()
				time.Sleep(50 * time.Second)
				checkEcho(t, busy)
				if patient {
					busy.Close()
					synctest.Wait()
				}
				err := <-down
				if patient != (err == nil) {
					t.Errorf("Shutdown: got %v", err)
				}
				if _, err := busy.Read(make([]byte, 1)); errors.Is(err, net.ErrClosed) != patient || errors.Is(err, syscall.ECONNRESET) == patient {
					t.Errorf("got %v, want closed by its owner %v", err, patient)
				}
			})
		})
	}
}

// The agents of a replica that is shut down are told which others there are.
func TestShutdownTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.mesh()
		a := r.beds["a"]
		told := a.listen("a", "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { a.s.Shutdown(ctx) })
		synctest.Wait()
		if got, want := told(), []string{"b"}; !slices.Equal(got, want) {
			t.Errorf("the agents were told %q, want %q", got, want)
		}
		cancel()
		wg.Wait()
	})
}

// Who is revoked at one replica is cut off at all at once, and at one that was
// away as soon as it is back.
func TestRevokeReachesPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.mesh()
		a, b := r.beds["a"], r.beds["b"]
		r.serve(&tunnel.Server{Name: "c", Peers: &members{}}) // it dials nobody
		r.at("b", &tunnel.Agent{})
		away := r.at("c", &tunnel.Agent{})
		busy := a.echo()
		for _, bed := range []*bed{b, r.beds["c"]} {
			s := bed.sessions()[0]
			if err := a.s.Revoke(t.Context(), tunnel.Identity{Cluster: s.Cluster, Agent: s.Agent}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := len(b.sessions()); n != 0 {
			t.Errorf("got %d sessions of the agent, want none", n)
		}
		if _, err := busy.Read(make([]byte, 1)); err == nil {
			t.Error("a stream of the agent goes on")
		}
		if !away.Status().Connected {
			t.Error("the other replica heard of it while it was away")
		}
		r.members.set("a:1", "b:1", "c:1")
		synctest.Wait()
		if n := len(r.beds["c"].sessions()); n != 0 {
			t.Errorf("got %d sessions of the other agent, want none", n)
		}
	})
}

// Without Peers nothing runs, and a Server ends with its Serve.
func TestNoPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{Name: "a"})
		if got := b.s.Fleet(t.Context()); len(got) != 1 || !got[0].Self || got[0].Name != "a" || !got[0].Connected {
			t.Errorf("got %+v, want itself", got)
		}
		b.stopServe()
		<-b.served
		synctest.Wait()
		if n := bubbled(); n > 3 { // the test's own
			t.Errorf("got %d goroutines, want none of the Server", n)
		}
	})
}

// A Membership that fails is asked again; what it said stays.
func TestMembershipFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "b")
		calls := 0
		m := membershipFunc(func(ctx context.Context, set func(map[string]string)) error {
			if calls++; calls == 1 {
				set(withoutZones([]string{"a:1", "b:1"}))
			}
			return errors.New("away")
		})
		a := newBedAt(t, &tunnel.Server{Name: "a", Authority: r.Authority, Peers: m, PeerDial: r.dialPeer}, r.w, "a:1")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got, want := connected(a.s), []string{"a", "b"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := a.s.Fleet(t.Context())[0]; got.LastError != "away" {
			t.Errorf("got %+v, want the error", got)
		}
		if calls < 10 || calls > 100 {
			t.Errorf("got %d calls in 5 minutes, want some", calls)
		}
	})
}

type membershipFunc func(ctx context.Context, set func(map[string]string)) error

func (f membershipFunc) Watch(ctx context.Context, set func(map[string]string)) error {
	return f(ctx, set)
}
