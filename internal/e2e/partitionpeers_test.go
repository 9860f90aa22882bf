package e2e

import (
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// A replica is cut from its peers: what it has by itself works, what only they
// have fails in bounded time with a code, and all is well after healing.
func testCutFromPeers(t *testing.T, table *faultTable) {
	for _, tt := range []struct {
		name string
		cut  func(*split)
	}{
		{"a replica and its peers", func(s *split) { s.cutBoth("a", "b", "c") }},
		{"a replica's packets to its peers", func(s *split) { s.cut("a", "b", "c") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const here, there = "e2e/here", "e2e/there"
			s := newSplit(t, table, tt.name, "a", "b", "c", "agents")
			s.target("agents")
			for _, name := range []string{"a", "b", "c"} {
				s.replica(name, &tunnel.Server{KeepAlive: soonDead}, "a", "b", "c")
			}
			a, b, c := s.replicas["a"], s.replicas["b"], s.replicas["c"]
			s.agent("agents", here, &tunnel.Agent{}, "a")
			s.agent("agents", there, &tunnel.Agent{}, "b")
			a.has(here, 1)
			b.has(there, 1)
			s.mesh()
			a.echoes(there) // now a remembers who has it
			b.echoes(here)
			tt.cut(s)
			cut := time.Now()
			s.tell("dial at the cut replica, agent there", "works", a.echoes(here))
			s.tell("dial at another, agent at yet another", "works", c.echoes(there))
			s.tell("first dial at the cut replica, agent elsewhere", "no agent", s.bounded(a.failsWith(there, tunnel.CodeNoAgent)))
			s.tell("first dial elsewhere, agent at the cut replica", "no agent", s.bounded(b.failsWith(here, tunnel.CodeNoAgent)))
			a.loses("b", "c")
			b.loses("a")
			c.loses("a")
			s.tell("dead sessions between replicas", "found", time.Since(cut))
			s.tell("dial at the cut replica after that, agent elsewhere", "no agent", a.failsWith(there, tunnel.CodeNoAgent))
			s.tell("dial elsewhere after that, agent at the cut replica", "no agent", b.failsWith(here, tunnel.CodeNoAgent))
			s.heal()
			s.tell("the mesh after healing", "whole", s.mesh())
			s.tell("dial after healing", "works", max(a.echoes(there), b.echoes(here), c.echoes(here)))
		})
	}
}

// A replica is cut from the agents: they keep their other session, and dials at
// it go that way.
func testCutFromAgents(t *testing.T, table *faultTable) {
	for _, tt := range []struct {
		name string
		cut  func(*split)
	}{
		{"a replica and the agents", func(s *split) { s.cutBoth("a", "agents") }},
		{"the agents' packets to a replica", func(s *split) { s.cut("agents", "a") }},
		{"a replica's packets to the agents", func(s *split) { s.cut("a", "agents") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSplit(t, table, tt.name, "a", "b", "agents")
			s.target("agents")
			a := s.replica("a", &tunnel.Server{KeepAlive: soonDead}, "a", "b")
			b := s.replica("b", &tunnel.Server{KeepAlive: soonDead}, "a", "b")
			s.mesh()
			s.agent("agents", cluster, &tunnel.Agent{}, "a", "b")
			a.has(cluster, 1)
			b.has(cluster, 1)
			open, err := a.Dialer(cluster).DialContext(t.Context(), "tcp", echoTarget)
			if err != nil {
				t.Fatal(err)
			}
			defer open.Close()
			if err := echo(open, time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			tt.cut(s)
			cut := time.Now()
			s.tell("first dial at the cut replica", "works by the other", s.bounded(a.echoes(cluster)))
			s.tell("the next", "works by the other", a.echoes(cluster))
			s.tell("dial at the other replica", "works", b.echoes(cluster))
			wantCut(t, open, time.Minute)
			s.tell("stream that was open by the cut replica", "reset", time.Since(cut))
			a.has(cluster, 0)
			s.tell("dead session at the cut replica", "found", time.Since(cut))
			s.tell("dial after that", "works by the other", a.echoes(cluster))
			s.heal()
			s.tell("the agent after healing", "has two sessions", a.has(cluster, 1))
			s.tell("dial after healing", "works", max(a.echoes(cluster), b.echoes(cluster)))
		})
	}
}
