package tunnel_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// zonedMembers know the zone of each replica: the first letter of its name, but none of
// those in unknown.
type zonedMembers struct {
	*members
	unknown string
}

func (m zonedMembers) Watch(ctx context.Context, set func(map[string]string)) error {
	return m.members.Watch(ctx, func(all map[string]string) {
		zones := maps.Clone(all)
		for address := range all {
			if zone := zoneIn(address); !strings.Contains(m.unknown, zone) {
				zones[address] = zone
			}
		}
		set(zones)
	})
}

func zoneIn(name string) string { return name[:1] }

// zonedReplicas are replicas whose zones are known, except those in unknown.
type zonedReplicas struct {
	*replicas
	unknown string
	store   tunnel.MemoryStore
}

func newZoned(t *testing.T, unknown string, names ...string) *zonedReplicas {
	r := &zonedReplicas{replicas: newReplicas(t), unknown: unknown}
	for _, name := range names {
		r.members.all = append(r.members.all, name+":1")
	}
	for _, name := range names {
		r.serveZoned(name)
	}
	r.mesh()
	return r
}

func (r *zonedReplicas) serveZoned(name string) {
	r.serve(&tunnel.Server{Name: name, Store: &r.store, Peers: zonedMembers{r.members, r.unknown}})
}

// areApart reports whether the agent has sessions in two zones.
func areApart(a *agent) bool {
	at := serving(a)
	return len(at) == 2 && zoneIn(at[0]) != zoneIn(at[1])
}

// TestZones: agents who come to the servers in their order get two sessions, in two zones if
// zones are known and there is a replica in another one.
func TestZones(t *testing.T) {
	for _, tt := range []struct {
		name    string
		up      []string
		unknown string
		close   string   // replicas of this zone end first
		servers []string // of the agent; nil: all
		want    []string
		within  time.Duration
	}{
		{"two zones", []string{"a1", "a2", "b1", "b2"}, "", "", nil, []string{"a1", "b1"}, 8 * time.Second},
		{"three zones", []string{"a1", "b1", "c1"}, "", "", nil, []string{"a1", "b1"}, 6 * time.Second},
		{"one zone", []string{"a1", "a2", "a3"}, "", "", nil, []string{"a1", "a2"}, 6 * time.Second},
		{"unknown zones", []string{"a1", "a2", "b1", "b2"}, "ab", "", nil, []string{"a1", "a2"}, 6 * time.Second},
		{"the own zone is unknown", []string{"a1", "a2", "b1", "b2"}, "a", "", nil, []string{"a1", "a2"}, 6 * time.Second},
		{"the other zone is unknown", []string{"a1", "a2", "b1", "b2"}, "b", "", nil, []string{"a1", "a2"}, 6 * time.Second},
		{"the other zone is gone", []string{"a1", "a2", "b1", "b2"}, "", "b", []string{"a1:1", "a2:1"}, []string{"a1", "a2"}, 6 * time.Second},
		{"the other zone is out of the agent's reach", []string{"a1", "a2", "b1"}, "", "", []string{"a1:1", "a2:1"}, []string{"a1", "a2"}, 25 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newZoned(t, tt.unknown, tt.up...)
				for name, b := range r.beds {
					if zoneIn(name) == tt.close {
						b.s.Close()
					}
				}
				time.Sleep(3 * time.Second) // the others say so
				if tt.servers == nil {
					tt.servers = r.members.all
				}
				a := r.beds["a1"].start(&tunnel.Agent{Servers: tt.servers, Hooks: tunnel.AgentHooks{
					Failed: func(server string, err error, _ time.Duration) { t.Errorf("failed at %s: %v", server, err) },
				}})
				began := time.Now()
				for !slices.Equal(serving(a), tt.want) && time.Since(began) < tt.within {
					time.Sleep(100 * time.Millisecond)
				}
				if got := serving(a); !slices.Equal(got, tt.want) {
					t.Errorf("got sessions with %q after %v, want %q", got, tt.within, tt.want)
				}
			})
		})
	}
}

// randomly is a Transport that connects each agent to any of the servers that run.
type randomly struct{ *wires }

func (r randomly) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	r.mu.Lock()
	var up []string
	for address := range r.listeners {
		up = append(up, address)
	}
	r.mu.Unlock()
	slices.Sort(up)
	return r.wires.Dial(ctx, network, up[rand.IntN(len(up))])
}

// TestZonesOfFleet: nearly all agents behind a load balancer have sessions in two zones,
// with a zone of fewer replicas too, and after a zone was away. Then there is peace.
func TestZonesOfFleet(t *testing.T) {
	for _, names := range [][]string{{"a1", "a2", "b1", "b2"}, {"a1", "a2", "b1"}} {
		t.Run(fmt.Sprint(names), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most = 60
				r := newZoned(t, "", names...)
				var agents []*agent
				for range most {
					agents = append(agents, r.beds["a1"].start(&tunnel.Agent{Dial: randomly{r.w}.Dial}))
				}
				check := func(when string) {
					t.Helper()
					one, apart := 0, 0
					for _, a := range agents {
						if len(serving(a)) != 2 {
							one++
						}
						if areApart(a) {
							apart++
						}
					}
					t.Logf("%s: %d of %d agents are in two zones; sessions: %v", when, apart, most, r.serving())
					if one > 0 || apart < most*7/10 { // one agent in eleven does not meet b1, of three replicas, in its zoneTries
						t.Errorf("%s: %d have not two sessions, and %d are in two zones, want 0 and nearly all of %d", when, one, apart, most)
					}
				}
				time.Sleep(2 * time.Minute)
				check("at first")
				settled := r.serving()
				before := len(r.w.times())
				time.Sleep(20 * time.Minute)
				if n := len(r.w.times()) - before; n > 3*len(names)*len(names) { // the replicas' own
					t.Errorf("got %d dials in 20 minutes after %v, now %v, want peace", n, settled, r.serving())
				}
				for name, b := range r.beds {
					if zoneIn(name) == "b" {
						b.s.Close()
					}
				}
				time.Sleep(2 * time.Minute)
				for _, a := range agents {
					if got := serving(a); !slices.Equal(got, []string{"a1", "a2"}) {
						t.Errorf("got sessions with %q while a zone is away, want a1 and a2", got)
					}
				}
				for _, name := range names {
					if zoneIn(name) == "b" {
						r.serveZoned(name)
					}
				}
				time.Sleep(30 * time.Minute)
				check("after a zone was away")
			})
		})
	}
}

// TestZoneIsFull: a replica that is alone in its zone, and has far more sessions than the
// others, is not waited for.
func TestZoneIsFull(t *testing.T) {
	for _, tt := range []struct {
		load uint64
		want []string
	}{{7, []string{"a1"}}, {100, []string{"a1", "a2"}}} {
		t.Run(fmt.Sprint(tt.load), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newZoned(t, "", "a1", "a2", "a3")
				controls := r.raw("b1", serveRaw(0, 42))
				r.members.set("a1:1", "a2:1", "a3:1", "b1:1")
				for range r.beds {
					(<-controls).Write(rawMessage(71, uint16(16), tt.load))
				}
				time.Sleep(3 * time.Second)
				before := len(r.w.times())
				a := r.beds["a1"].start(&tunnel.Agent{Servers: []string{"a1:1", "a2:1"}})
				for len(r.w.times()) < before+3 { // to enrol, to a1 and to a2
					time.Sleep(time.Millisecond)
				}
				synctest.Wait()
				if got := serving(a); !slices.Equal(got, tt.want) {
					t.Errorf("got sessions with %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestFairShare(t *testing.T) {
	for _, tt := range []struct {
		zones map[string]int
		own   string
		want  int // of 1,000
	}{
		{map[string]int{"": 3}, "", 333},
		{map[string]int{"a": 3}, "a", 333},
		{map[string]int{"a": 1, "b": 1, "c": 1}, "a", 333},
		{map[string]int{"a": 2, "b": 2}, "b", 250},
		{map[string]int{"a": 2, "b": 1, "c": 1}, "a", 250},
		{map[string]int{"a": 2, "b": 1}, "a", 250},
		{map[string]int{"a": 2, "b": 1}, "b", 500},
		{map[string]int{"a": 2, "": 1}, "a", 333},
		{map[string]int{"a": 2, "": 1}, "", 333},
		{map[string]int{"a": 9, "b": 1}, "a", 88},
		{map[string]int{"a": 9, "b": 1}, "b", 200},
		{map[string]int{"a": 6, "b": 2, "c": 2}, "a", 83},
		{map[string]int{"a": 6, "b": 2, "c": 2}, "c", 125},
	} {
		if got := tunnel.FairShare(1000, tt.zones, tt.own); got != tt.want {
			t.Errorf("%v, %q: got %d, want %d", tt.zones, tt.own, got, tt.want)
		}
	}
}

// TestHoldersInZone: of the replicas that have answered, one in the own zone is first.
func TestHoldersInZone(t *testing.T) {
	for _, tt := range []struct {
		own         string
		zones, want []string
	}{
		{"a", []string{"b", "", "a"}, []string{"a", "b", ""}},
		{"a", []string{"b", "c"}, []string{"b", "c"}},
		{"", []string{"b", "", "a"}, []string{"b", "", "a"}},
	} {
		if got := tunnel.HoldersIn(tt.own, tt.zones...); !slices.Equal(got, tt.want) {
			t.Errorf("in %q: got %q, want %q", tt.own, got, tt.want)
		}
	}
}

// TestFleetZones: the status says where each replica is, also after that has changed.
func TestFleetZones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newZoned(t, "", "a1", "b1")
		s := r.beds["a1"].s
		if own, other := row(s, "a1").Zone, row(s, "b1").Zone; own != "a" || other != "b" {
			t.Errorf("got the zones %q and %q, want a and b", own, other)
		}
		r.members.set("a1:1")
		r.members.set("a1:1", "b1:1")
		r.mesh()
		if own, other := row(s, "a1").Zone, row(s, "b1").Zone; own != "a" || other != "b" {
			t.Errorf("got the zones %q and %q, want a and b", own, other)
		}
	})
}
