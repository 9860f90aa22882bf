package status_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/status"
)

func moved(s tunnel.SessionInfo, streams int, trip time.Duration) tunnel.SessionInfo {
	s.Streams, s.RoundTrip = streams, trip
	return s
}

// facts returns the value of each figure of the summary, or of a cluster's.
func facts(t *testing.T, h *status.Handler, uri string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, n := range all(all(get(t, h, uri), ".facts")[0], "div") {
		found[text(all(n, "dt")[0])] = text(all(n, "dd")[0])
	}
	return found
}

func TestFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet{
			server("a", moved(session("c", "1"), 2, time.Millisecond), moved(session("c", "4"), 1, 40*time.Millisecond), session("d", "3")),
			server("b", moved(session("c", "1"), 0, 2*time.Millisecond), gone("e")),
		}
		h := &status.Handler{Fleet: f.get}
		got := facts(t, h, "/")
		for name, want := range map[string]string{
			"Clusters reachable": "2 of 3", "Replicas answering": "2 of 2", "Agents": "2", "Sessions": "4", "Open streams": "3",
		} {
			if got[name] != want {
				t.Errorf("%s: got %q, want %q", name, got[name], want)
			}
		}
		page := get(t, h, "/?q=agent-c")
		if row := table(t, page, "clusters")[0]; row[3] != "3" || row[4] != "40 ms" {
			t.Errorf("got %q, want 3 streams and the slowest of the round trips", row)
		}
		for i, want := range [][]string{{"2", "3", "3"}, {"1", "1", "0"}} {
			if row := table(t, page, "replicas")[i]; !slices.Equal(row[2:5], want) {
				t.Errorf("got %q, want clusters, sessions, streams %q", row, want)
			}
		}
	})
}

// TestRecentDials: the page counts the dials of the last minutes, however often it is read.
func TestRecentDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet{server("a", longAgo(dialed(session("c", "1"), 100, 90)), dialed(session("c", "2"), 7, 0)), server("b", denied(dialed(session("c", "3"), 9, 9), 4))}
		h := &status.Handler{Fleet: f.get}
		if got := facts(t, h, "/?cluster=c")["Dials to agents, last minutes"]; got != "16, 5 failed, 4 denied" {
			t.Errorf("got %q, want the dials of the last minutes", got)
		}
	})
}

func TestOneCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := moved(draining(longAgo(dialed(session("c", "1"), 7, 2))), 3, 5*time.Millisecond)
		s.BytesIn, s.BytesOut = 1500, 20
		s.Program, s.Denied = "causeway-agent v1.2.3", 1
		s.Since, s.Expires = time.Now().Add(-90*time.Minute), time.Now().Add(30*24*time.Hour)
		f := fleet{server("a", s, session("c", "2")), server("b", gone("c"))}
		f[1].Status.Clusters[0].LastError = "tunnel: lost"
		h := &status.Handler{Fleet: f.get, Title: "Edge"}
		page := get(t, h, "/?cluster=c")
		want := []string{"a", "agent-c causeway-agent v1.2.3", "Draining", "192.0.2.1:5000", "31 Dec 1999 22:30 UTC 1 h", "31 Jan 00:00 UTC", "3", "7, 1 failed, 1 denied", "1.5 kB 20 B", "5.0 ms"}
		if got := table(t, page, "sessions"); len(got) != 2 || !slices.Equal(got[0], want) || got[1][2] != "Takes streams" || got[1][9] != "-" {
			t.Errorf("got %q, want %q and one without a round trip", got, want)
		}
		if got := text(all(page, ".error")[0]); got != "b : tunnel: lost" {
			t.Errorf("got %q, want the error of b", got)
		}
		if got := text(all(page, "title")[0]); got != "c: One replica - Edge" {
			t.Errorf("got title %q, want the cluster's state", got)
		}
	})
}

// A row says which replicas hold each agent's sessions.
func TestHeldBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := session("c", "3")
		other.Agent = "other"
		f := fleet{server("a", session("c", "1"), other), server("b", draining(session("c", "2")))}
		h := &status.Handler{Fleet: f.get}
		if got, want := table(t, get(t, h, "/"), "clusters")[0][2], "a 2 s b 2 s, draining agent agent-c a 2 s agent other"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		f = append(f, server("d", session("c", "4"), session("c", "5"), session("c", "6")))
		if got := table(t, get(t, h, "/"), "clusters")[0][2]; got != "a 4 s b 4 s, draining d 2 s agent agent-c a 4 s agent other and 2 more" {
			t.Errorf("got %q, want what there is no room for", got)
		}
	})
}

func TestFormats(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 7200))
	for _, tt := range []struct{ got, want string }{
		{status.Size(0), "0 B"}, {status.Size(999), "999 B"}, {status.Size(1000), "1.0 kB"}, {status.Size(9949), "9.9 kB"},
		{status.Size(9950), "10 kB"}, {status.Size(999499), "999 kB"}, {status.Size(999500), "1.0 MB"}, {status.Size(1 << 63), "9.2 EB"},
		{status.Trip(0), "-"}, {status.Trip(400 * time.Microsecond), "0.4 ms"}, {status.Trip(31200 * time.Microsecond), "31 ms"}, {status.Trip(1260 * time.Millisecond), "1.3 s"},
		{status.Duration(-time.Second), "0 ms"}, {status.Duration(999 * time.Millisecond), "999 ms"}, {status.Duration(59 * time.Second), "59 s"},
		{status.Duration(time.Hour - 1), "59 min"}, {status.Duration(125 * time.Minute), "2 h 5 min"}, {status.Duration(49 * time.Hour), "2 d 1 h"},
		{status.Brief(125 * time.Minute), "2 h"}, {status.Brief(time.Minute), "1 min"},
		{status.Clock(time.Time{}, now), "-"}, {status.Clock(now, now), "03:06:07 UTC"},
		{status.Clock(now.Add(-4*time.Hour), now), "3 Mar 23:06 UTC"}, {status.Clock(now.AddDate(-1, 0, 0), now), "4 Mar 2025 03:06 UTC"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
