package status_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/status"
)

func draining(s tunnel.SessionInfo) tunnel.SessionInfo {
	s.Draining = true
	return s
}

func dialed(s tunnel.SessionInfo, dials, failed uint64) tunnel.SessionInfo {
	s.DialCounts = tunnel.DialCounts{Dials: dials, Failed: failed}
	s.Recent = s.DialCounts
	return s
}

func denied(s tunnel.SessionInfo, n uint64) tunnel.SessionInfo {
	s.Denied, s.Recent.Denied = n, n
	return s
}

// longAgo has no dials of the last minutes.
func longAgo(s tunnel.SessionInfo) tunnel.SessionInfo {
	s.Recent = tunnel.DialCounts{}
	return s
}

func TestStates(t *testing.T) {
	leaves := server("b", session("c", "2"))
	leaves.Draining = true
	silent := tunnel.ReplicaStatus{Name: "b", LastError: "no route"}
	self := tunnel.ReplicaStatus{Name: "a", Self: true, Status: server("a", session("c", "1")).Status}
	for _, tt := range []struct {
		name          string
		before, now   fleet
		state, why    string
		headline, key string
	}{
		{"held by two", nil, fleet{server("a", session("c", "1")), server("b", session("c", "2"))},
			"OK", "", "Every cluster can be reached: 1.", "ok"},
		{"there is one replica", nil, fleet{server("a", session("c", "1"))},
			"OK", "", "Every cluster can be reached: 1.", "ok"},
		{"the one that was asked", nil, fleet{self},
			"OK", "", "Every cluster can be reached: 1.", "ok"},
		{"two sessions at one of two", nil, fleet{server("a", session("c", "1"), session("c", "2")), server("b")},
			"One replica", "Only a holds it: it is lost while that replica restarts.", "Every cluster can be reached: 1. 1 of 1 cluster is held by only one replica: c.", "alone"},
		{"one of two drains", nil, fleet{server("a", draining(session("c", "1"))), server("b", session("c", "2"))},
			"One replica", "Only b holds it: it is lost while that replica restarts.", "Every cluster can be reached: 1. 1 of 1 cluster is held by only one replica: c.", "alone"},
		{"the other replica drains", nil, fleet{server("a", session("c", "1")), leaves},
			"OK", "", "Every cluster can be reached: 1. Replica b: draining, the agents move to other replicas.", "draining"},
		{"all drain", nil, fleet{leaves, server("a", draining(session("c", "1")))},
			"Draining", "It takes no new connections: all its sessions drain.", "1 of 1 cluster drains and takes no new connections: c. Replica b: draining, the agents move to other replicas.", "draining"},
		{"5% of the dials fail", nil, fleet{server("a", dialed(session("c", "1"), 20, 1))},
			"Dials fail", "1 of 20 dials failed in the last minutes.", "1 of 1 cluster has dials that fail: c.", "failing"},
		{"fewer fail", nil, fleet{server("a", dialed(session("c", "1"), 21, 1))},
			"OK", "", "Every cluster can be reached: 1.", "ok"},
		{"the agent's policy denied them", nil, fleet{server("a", denied(dialed(session("c", "1"), 20, 20), 20))},
			"OK", "", "Every cluster can be reached: 1.", "ok"},
		{"of those it allowed, 5% fail", nil, fleet{server("a", denied(dialed(session("c", "1"), 40, 21), 20))},
			"Dials fail", "1 of 20 dials failed in the last minutes.", "1 of 1 cluster has dials that fail: c.", "failing"},
		{"they failed before", nil, fleet{server("a", longAgo(dialed(session("c", "1"), 100, 100)))},
			"OK", "", "Every cluster can be reached: 1.", "ok"},
		{"no session, never seen", nil, fleet{server("a", gone("c"))},
			"No agent", "Gone since before this page was first opened, at 00:00:02 UTC.", "1 of 1 cluster has no agent: c.", "down"},
		{"no session any more", fleet{server("a", session("c", "1"))}, fleet{server("a", gone("c"))},
			"No agent", "An agent was last seen 2 s ago, at 00:00:02 UTC.", "1 of 1 cluster has no agent: c.", "down"},
		{"its replica is gone", fleet{server("a"), server("b", session("c", "1"))}, fleet{server("a"), silent},
			"No agent", "An agent was last seen 2 s ago, at 00:00:02 UTC. It was on b, which can't be reached.", "1 of 1 cluster has no agent: c. Replica b can't be reached.", "down"},
		{"a replica is gone", nil, fleet{server("a", session("c", "1")), silent},
			"OK", "", "Replica b can't be reached.", "down"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := tt.before
				h := &status.Handler{Fleet: f.get}
				if f != nil {
					get(t, h, "/")
				}
				f = tt.now
				page := get(t, h, "/")
				row := table(t, page, "clusters")[0]
				got := []string{strings.TrimLeft(row[0], "✓1→!✕ "), row[5], strings.Join(headline(page), " "), strings.Fields(attr(all(page, ".headline")[0], "class"))[1]}
				if diff := cmp.Diff([]string{tt.state, tt.why, tt.headline, tt.key}, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
				if signs := all(all(page, ".clusters")[0], ".sign"); len(signs) != 1 || text(signs[0]) == "" {
					t.Errorf("got %d signs, want one beside the colour", len(signs))
				}
			})
		})
	}
}

// What is worst comes first, and what has just happened before what is old.
func TestTroubleFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names1 := []string{"fine", "old", "alone", "failing", "leaving", "new"}
		both := func(name string, id string) tunnel.SessionInfo { return session(name, id) }
		var a, b []tunnel.SessionInfo
		for _, n := range names1 {
			a, b = append(a, both(n, n+"1")), append(b, both(n, n+"2"))
		}
		f := fleet{server("a", a...), server("b", b...)}
		h := &status.Handler{Fleet: f.get}
		if got := names(t, get(t, h, "/")); !slices.IsSorted(got) || len(got) != 6 {
			t.Errorf("got %q, want them by name", got)
		}
		set := func(i int, now, then tunnel.SessionInfo) { a[i], b[i] = now, then }
		set(1, gone("old"), gone("old"))
		f = fleet{server("a", a...), server("b", b...)}
		get(t, h, "/")
		set(2, a[2], gone("alone"))
		set(3, dialed(a[3], 10, 10), b[3])
		set(4, draining(a[4]), draining(b[4]))
		set(5, gone("new"), gone("new"))
		f = fleet{server("b", b...), {Name: "z", LastError: "no route"}, server("a", a...)}
		page := get(t, h, "/")
		if got, want := names(t, page), []string{"new", "old", "leaving", "failing", "alone", "fine"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		want := []string{
			"2 of 6 clusters have no agent: new, old.", "Replica z can't be reached.", "1 of 6 clusters drains and takes no new connections: leaving.",
			"1 of 6 clusters has dials that fail: failing.", "1 of 6 clusters is held by only one replica: alone.",
		}
		if diff := cmp.Diff(want, headline(page)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if got := attr(all(page, ".headline")[0], "class"); got != "headline down" {
			t.Errorf("got class %q, want that of the worst", got)
		}
		if got := table(t, page, "replicas"); got[0][1] != "z" || got[0][0] != "✕ Can't be reached" || got[0][5] != "no route" || got[1][1] != "a" {
			t.Errorf("got %q, want z and its error before a and b", got)
		}
		if got := text(all(page, "title")[0]); got != "2 of 6 clusters have no agent: new, old. - Tunnel" {
			t.Errorf("got title %q, want what is wrong", got)
		}
	})
}

// A cluster that no replica knows any more is in trouble until it is forgotten.
func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet{server("a", session("c", "1"))}
		h := &status.Handler{Fleet: f.get}
		get(t, h, "/")
		f = fleet{server("a")}
		time.Sleep(status.Keep - 2*time.Second)
		row := table(t, get(t, h, "/"), "clusters")[0]
		if row[5] != "An agent was last seen 1 d 0 h ago, at 1 Jan 00:00 UTC." || row[2] != "was at a" {
			t.Errorf("got %q, want since when and where", row)
		}
		if page := get(t, h, "/"); h.Clusters() != 0 || len(names(t, page)) != 0 || headline(page)[0] != "No agent has connected yet." {
			t.Errorf("got %d clusters, want none", h.Clusters())
		}
	})
}

// Names that are many are counted.
func TestHeadlineCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet{server("self", gone("a"), gone("b"), gone("c"), gone("d"))}
		for _, name := range []string{"r1", "r2", "r3", "r4"} {
			f = append(f, tunnel.ReplicaStatus{Name: name})
		}
		h := &status.Handler{Fleet: f.get}
		want := []string{"4 of 4 clusters have no agent.", "4 replicas can't be reached."}
		if diff := cmp.Diff(want, headline(get(t, h, "/"))); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// The row of a replica has its zone, if that is known.
func TestReplicaZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet{server("a"), server("b")}
		f[0].Zone = "eu-1"
		rows := table(t, get(t, &status.Handler{Fleet: f.get}, "/"), "replicas")
		if a, b := rows[0][1], rows[1][1]; a != "a zone eu-1" || b != "b" {
			t.Errorf("got %q and %q, want the zone of a only", a, b)
		}
	})
}
