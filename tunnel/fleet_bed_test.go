package tunnel_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
	"github.com/causewayproject/causeway/tunnel"
)

// members is a Membership that a test changes.
type members struct {
	mu   sync.Mutex // guards the fields below
	all  []string
	sets map[chan struct{}]func(map[string]string)
}

func (m *members) Watch(ctx context.Context, set func(map[string]string)) error {
	m.mu.Lock()
	if m.sets == nil {
		m.sets = map[chan struct{}]func(map[string]string){}
	}
	key := make(chan struct{})
	m.sets[key] = set
	set(withoutZones(m.all))
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sets, key)
	return ctx.Err()
}

func (m *members) set(all ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = all
	for _, set := range m.sets {
		set(withoutZones(all))
	}
}

// withoutZones is what a Membership says that knows no zones.
func withoutZones(addresses []string) map[string]string {
	zones := map[string]string{}
	for _, address := range addresses {
		zones[address] = ""
	}
	return zones
}

// replicas are servers on the same wires, at the addresses a:1, b:1 and so on,
// which are their names' too.
type replicas struct {
	t       testing.TB
	w       *wires
	members *members
	*tunnel.Authority
	beds map[string]*bed

	mu    sync.Mutex
	links map[string]testLink // by address
}

func newReplicas(t testing.TB, names ...string) *replicas {
	t.Helper()
	a, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	r := &replicas{t: t, w: &wires{}, members: &members{}, Authority: a, beds: map[string]*bed{}, links: map[string]testLink{}}
	for _, name := range names {
		r.members.all = append(r.members.all, name+":1")
	}
	for _, name := range names {
		r.serve(&tunnel.Server{Name: name})
	}
	return r
}

// serve serves s at the address of its name.
func (r *replicas) serve(s *tunnel.Server) *bed {
	r.t.Helper()
	if s.Authority == nil {
		s.Authority = r.Authority
	}
	if s.Peers == nil {
		s.Peers = r.members
	}
	s.PeerDial = r.dialPeer
	b := newBedAt(r.t, s, r.w, s.Name+":1")
	r.beds[s.Name] = b
	return b
}

func (r *replicas) dialPeer(ctx context.Context, _, address string) (net.Conn, error) {
	conn, err := r.w.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return r.link(address).join(conn), nil
}

// link is what all leads over that is dialed at an address by a peer.
func (r *replicas) link(address string) testLink {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.links[address].Link == nil {
		r.links[address] = newTestLink(r.t)
	}
	return r.links[address]
}

// testLink is a link of pipes.
type testLink struct{ *linktest.Link }

func newTestLink(t testing.TB) testLink {
	l := linktest.New(linktest.Config{})
	t.Cleanup(func() { l.Close() })
	return testLink{l}
}

// join returns the client's end of a connection that ends in target.
func (l testLink) join(target net.Conn) net.Conn {
	near, far := net.Pipe()
	l.Join(far, target)
	return near
}

// hang lets nothing pass any more.
func (l testLink) hang() {
	l.Set(linktest.Config{Up: linktest.Direction{Drop: true}, Down: linktest.Direction{Drop: true}})
}

// hang has the replica take and give nothing on the sessions that its peers
// dialed; new ones come by.
func (r *replicas) hang(name string) {
	r.link(name + ":1").hang()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, name+":1")
}

// at starts an agent of testCluster at one replica, and returns when it is
// connected.
func (r *replicas) at(name string, a *tunnel.Agent) *agent {
	r.t.Helper()
	a.Servers = []string{name + ":1"}
	return r.beds[name].agent(a)
}

// mesh returns when each replica has a session with each other one, and agents would
// hear of it. The test runs in a bubble.
func (r *replicas) mesh() {
	r.t.Helper()
	for range 60 {
		synctest.Wait()
		whole := true
		for _, b := range r.beds {
			whole = whole && len(connected(b.s)) == len(r.beds)
		}
		if whole {
			time.Sleep(3 * time.Second) // the servers say it 2 s later
			synctest.Wait()
			return
		}
		time.Sleep(time.Second)
	}
	for name, b := range r.beds {
		r.t.Errorf("%s sees %+v", name, b.s.Fleet(r.t.Context()))
	}
	r.t.FailNow()
}

// connected are the names of the replicas that s is connected to, its own
// included.
func connected(s *tunnel.Server) (names []string) {
	for _, r := range s.Fleet(context.Background()) {
		if r.Connected {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

// row is what s knows of a replica.
func row(s *tunnel.Server, name string) tunnel.ReplicaStatus {
	for _, r := range s.Fleet(context.Background()) {
		if r.Name == name {
			return r
		}
	}
	return tunnel.ReplicaStatus{}
}
