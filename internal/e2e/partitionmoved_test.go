package e2e

import (
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// An agent has moved to another host, and two replicas believe in its old
// sessions: nobody has told them. A dial through any of them comes to where the
// agent is, and a session that comes to one of them takes the old one's place.
func testAgentMoved(t *testing.T, table *faultTable) {
	s := newSplit(t, table, "an agent has moved; two replicas believe in its old sessions", "a", "b", "c", "old", "new")
	s.target("old")
	s.target("new")
	for _, name := range []string{"a", "b", "c"} {
		// The old sessions live for longer than the test.
		s.replica(name, &tunnel.Server{KeepAlive: tunnel.KeepAlive{DeadAfter: 5 * time.Minute}}, "a", "b", "c")
	}
	a, b, c := s.replicas["a"], s.replicas["b"], s.replicas["c"]
	s.mesh()
	same := tunnel.MemoryCredentials{}
	s.agent("old", cluster, &tunnel.Agent{Credentials: &same}, "a", "b")
	a.has(cluster, 1)
	b.has(cluster, 1)
	a.echoes(cluster)
	b.echoes(cluster)
	c.echoes(cluster) // and remembers who had it
	s.cutBoth("old", "a", "b")
	s.agent("new", cluster, &tunnel.Agent{Credentials: &same}, "c")
	c.has(cluster, 1)
	s.tell("dial at the replica that has it", "works", c.echoes(cluster))
	s.tell("first dial at one that believes", "works", a.echoes(cluster))
	s.tell("first dial at the other that believes", "works", b.echoes(cluster))
	s.tell("the next", "works", max(a.echoes(cluster), b.echoes(cluster)))
	for _, r := range []*replica{a, b} {
		if n := len(r.sessions()); n != 1 {
			t.Errorf("%s has %d sessions, want the old one still", r.name, n)
		}
	}
	s.agent("new", cluster, &tunnel.Agent{Credentials: &same}, "a")
	a.has(cluster, 2)
	s.tell("dial once it has come to one that believed", "works by the newest", a.echoes(cluster))
	old, newest := a.sessions()[0], a.sessions()[1]
	if !old.Draining || newest.Draining || newest.Dials == 0 {
		t.Errorf("got the sessions %+v and %+v, want the older one to be retired", old, newest)
	}
}

func (r *replica) sessions() (all []tunnel.SessionInfo) {
	for _, c := range r.Status().Clusters {
		all = append(all, c.Sessions...)
	}
	return all
}
