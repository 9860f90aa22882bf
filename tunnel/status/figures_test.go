package status_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/status"
)

func moved(s tunnel.SessionInfo, in, out uint64, streams int, trip time.Duration) tunnel.SessionInfo {
	s.BytesIn, s.BytesOut, s.Streams, s.RoundTrip = in, out, streams, trip
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
		c1, c2, d := session("c", "1"), session("c", "1"), session("d", "3") // ids are a replica's own
		f := fleet{server("a", moved(c1, 1e6, 100, 2, time.Millisecond), d), server("b", moved(c2, 4e6, 50, 1, 0), gone("e"))}
		h := &status.Handler{Fleet: f.get}
		got := facts(t, h, "/")
		for name, want := range map[string]string{
			"Clusters reachable": "2 of 3", "Replicas answering": "2 of 2", "Agents": "2", "Sessions": "3", "Open streams": "3",
			"From clusters": "-", "To clusters": "-",
		} {
			if got[name] != want {
				t.Errorf("%s: got %q at first, want %q", name, got[name], want)
			}
		}
		// Over two seconds; a session that is new on a replica that was asked
		// before counts from zero, and so does a counter that began anew.
		c3 := session("c", "4")
		f = fleet{server("a", moved(c1, 3e6, 300, 2, time.Millisecond), d, moved(c3, 2e6, 0, 1, 40*time.Millisecond)), server("b", moved(c2, 4e6, 20, 0, 2*time.Millisecond), gone("e"))}
		got = facts(t, h, "/")
		for name, want := range map[string]string{"From clusters": "2.0 MB/s", "To clusters": "110 B/s", "Open streams": "3", "Sessions": "4"} {
			if got[name] != want {
				t.Errorf("%s: got %q, want %q", name, got[name], want)
			}
		}
		page := get(t, h, "/?sort=name")
		row := table(t, page, "clusters")[0]
		if row[3] != "3" || row[4] != "0 B/s 0 B/s" || row[5] != "40 ms" {
			t.Errorf("got %q, want 3 streams, no bytes any more, the slowest of the round trips", row)
		}
		for i, want := range [][]string{{"2", "3", "3"}, {"1", "1", "0"}} {
			if row := table(t, page, "replicas")[i]; !slices.Equal(row[2:5], want) {
				t.Errorf("got %q, want clusters, sessions, streams %q", row, want)
			}
		}
	})
}

// What a replica counted while it was not seen says nothing of a rate, and so
// does a time that is too long.
func TestUnknownRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := session("c", "1")
		f := fleet{server("a"), {Name: "b", Connected: false}}
		h := &status.Handler{Fleet: f.get}
		get(t, h, "/")
		f = fleet{server("a"), server("b", moved(dialed(c, 9, 9), 5e9, 5e9, 0, 0))}
		page := get(t, h, "/")
		if row := table(t, page, "clusters")[0]; row[4] != "0 B/s 0 B/s" || !strings.Contains(row[0], "One replica") {
			t.Errorf("got %q, want no bytes and no failed dials of a time that nobody saw", row)
		}
		time.Sleep(time.Minute)
		f = fleet{server("a"), server("b", moved(dialed(c, 9, 9), 6e9, 5e9, 0, 0))}
		page = get(t, h, "/")
		if row := table(t, page, "clusters")[0]; row[4] != "- -" {
			t.Errorf("got %q after more than a minute, want no rate", row)
		}
		for _, row := range table(t, page, "replicas") {
			if row[5] != "- -" {
				t.Errorf("got %q after more than a minute, want no rate", row)
			}
		}
	})
}

// The failed dials are those of the chart's time.
func TestFailuresAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet{server("a", session("c", "1"))}
		h := &status.Handler{Fleet: f.get}
		get(t, h, "/")
		f = fleet{server("a", dialed(session("c", "1"), 4, 3))}
		get(t, h, "/")
		get(t, h, "/") // in the same step, and nothing is dialed
		for range 12 {
			time.Sleep(47 * time.Second)
			get(t, h, "/")
		}
		if got := facts(t, h, "/?cluster=c")["Dials to agents since this page was first opened, 9 min ago"]; got != "4, 3 failed" {
			t.Errorf("got %q, want the dials of ten minutes ago", got)
		}
		time.Sleep(8 * time.Second)
		if got := facts(t, h, "/?cluster=c")["Dials to agents, last 10 min"]; got != "0, 0 failed" {
			t.Errorf("got %q after ten minutes, want none", got)
		}
	})
}

// The figures of dials say of what time they are: that in which somebody looked.
func TestSinceWhenDialsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet{server("a", dialed(session("c", "1"), 100, 90))}
		h := &status.Handler{Fleet: f.get}
		dials := uint64(100)
		for _, tt := range []struct {
			after       time.Duration
			times       int
			title, want string
		}{
			{0, 1, "Dials to agents, counted from now on", "0, 0 failed"},
			{10 * time.Second, 1, "Dials to agents since this page was first opened, 12 s ago", "1, 0 failed"},
			{28 * time.Second, 21, "Dials to agents, last 10 min", "20, 0 failed"},
			{3 * time.Hour, 1, "Dials to agents, last 3 h 0 min", "1, 0 failed"}, // nobody has looked
			{28 * time.Second, 2, "Dials to agents, last 3 h 1 min", "3, 0 failed"},
			{28 * time.Second, 20, "Dials to agents, last 10 min", "20, 0 failed"},
		} {
			var got map[string]string
			for range tt.times {
				time.Sleep(tt.after)
				f = fleet{server("a", dialed(session("c", "1"), dials, 90))}
				got = facts(t, h, "/?cluster=c")
				dials++
			}
			if got[tt.title] != tt.want {
				t.Errorf("got %q, want %s: %s", got, tt.title, tt.want)
			}
		}
	})
}

func TestOneCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := moved(draining(dialed(session("c", "1"), 7, 2)), 1500, 20, 3, 5*time.Millisecond)
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

func TestHistory(t *testing.T) {
	steps := func(from, to int64) (s []int64) {
		for ; from <= to; from++ {
			s = append(s, from)
		}
		return s
	}
	for _, tt := range []struct {
		name  string
		put   []int64
		until int64
		want  map[int]float32 // by index; the others are gaps
	}{
		{"nothing", nil, 5, nil},
		{"the first", []int64{0}, 0, map[int]float32{59: 0}},
		{"a gap", []int64{0, 1, 4}, 4, map[int]float32{55: 0, 56: 1, 59: 4}},
		{"later", []int64{0, 3}, 10, map[int]float32{49: 0, 52: 3}},
		{"around", steps(0, 70), 71, nil},
		{"out of sight", []int64{7}, 67, nil},
		{"at the edge", []int64{7}, 66, map[int]float32{0: 7}},
		{"after a long time", append(steps(0, 59), 1000), 1000, map[int]float32{59: 1000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, got := range status.History(tt.put, tt.until) {
				want, ok := tt.want[i]
				if tt.name == "around" && i < status.Slots-1 {
					want, ok = float32(12+i), true
				}
				if known := got == got; known != ok || known && got != want {
					t.Errorf("point %d: got %v, want %v, %v", i, got, want, ok)
				}
			}
		})
	}
}

func TestLine(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []float32
		want   string
	}{
		{"nothing", nil, ""},
		{"one", []float32{5}, "M59 1h.1"},
		{"zeros", []float32{0, 0, 0}, "M57 19h.1H59"},
		{"up and down", []float32{0, 9, 18, 0}, "M56 19h.1L57 10L58 1L59 19"},
		{"flat in the middle", []float32{0, 4, 4, 4, 0}, "M55 19h.1L56 1H58L59 19"},
		{"a gap", []float32{4, 4, status.Gap, 4}, "M56 1h.1H57M59 1h.1"},
	} {
		if got := status.Line(tt.values); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestFormats(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 7200))
	for _, tt := range []struct{ got, want string }{
		{status.Size(0), "0 B"}, {status.Size(999), "999 B"}, {status.Size(1000), "1.0 kB"}, {status.Size(9949), "9.9 kB"},
		{status.Size(9950), "10 kB"}, {status.Size(999499), "999 kB"}, {status.Size(999500), "1.0 MB"}, {status.Size(1 << 63), "9.2 EB"},
		{status.Rate(0), "0 B/s"}, {status.Rate(status.Gap), "-"},
		{status.Trip(status.Gap), "-"}, {status.Trip(0.0004), "0.4 ms"}, {status.Trip(0.0312), "31 ms"}, {status.Trip(1.26), "1.3 s"},
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
