package status_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/status"
)

func failure(cluster string, code tunnel.Code, n uint64, ago time.Duration, caller string) tunnel.DialFailures {
	return tunnel.DialFailures{
		Cluster: cluster, Code: code, Reason: code.String(), Side: code.Side(), Count: n, Last: time.Now().Add(-ago),
		Text: code.String() + ", it says", Target: "api:443", Caller: caller,
	}
}

// The page tells why dials fail: of all replicas together, the latest first, and a denial
// apart from trouble.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		f := fleet{server("a", session("c", "1"), gone("down")), server("b", session("c", "2")), {Name: "lost"}}
		f[0].Status.Failures = []tunnel.DialFailures{failure("c", tunnel.CodeDenied, 70, time.Minute, "ann"), failure("down", tunnel.CodeNoAgent, 3, time.Hour, "bob")}
		f[1].Status.Failures = []tunnel.DialFailures{failure("c", tunnel.CodeDenied, 1, time.Second, "eve"), failure("c", tunnel.CodeRefused, 2, 2*time.Minute, ""), failure("never", tunnel.CodeCanceled, 1, 3*time.Hour, "bob")}
		f[2].Status.Failures = []tunnel.DialFailures{failure("c", tunnel.CodeTimeout, 1, 0, "")} // an old answer
		h := &status.Handler{Fleet: f.get, Program: "causeway v1.2.3"}
		want := [][]string{
			{"⊘ Denied by policy", "71", "00:59:59 UTC 3 s ago", "eve", "api:443", "the agent's policy does not allow the target, it says"},
			{"! Target", "2", "00:58:00 UTC 2 min ago", "-", "api:443", "the target refused the connection, it says"},
		}
		if diff := cmp.Diff(want, table(t, get(t, h, "/?cluster=c"), "failures")); diff != "" {
			t.Error(diff)
		}
		page := get(t, h, "/")
		rows := table(t, page, "failures")
		if diff := cmp.Diff([]string{"c", "c", "down", "never"}, column(rows, 1)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"⊘ Denied by policy", "! Target", "✕ Tunnel", "→ Caller"}, column(rows, 0)); diff != "" {
			t.Error(diff)
		}
		if got := text(all(page, "h1")[0]); got != "Tunnel causeway v1.2.3" {
			t.Errorf("got %q, want title and version", got)
		}
		never := parse(t, request(h, "GET", "/?cluster=never").Body.String())
		if rows := table(t, never, "failures"); len(rows) != 1 || rows[0][0] != "→ Caller" {
			t.Errorf("got %q of a cluster that never had an agent", rows)
		}
		f[0].Status.Failures = []tunnel.DialFailures{failure("made-up", tunnel.CodeNoAgent, 1, 0, "bob")}
		clusters := func() string { return strings.Join(headline(get(t, h, "/")), " ") }
		if got := clusters(); !strings.Contains(got, "of 3 clusters") {
			t.Errorf("got %q, want the one that a dial has failed for, too", got)
		}
		f[0].Status.Failures = nil
		if got := clusters(); !strings.Contains(got, "of 2 clusters") {
			t.Errorf("got %q, want none that only a former failure has named", got)
		}
	})
}

func column(rows [][]string, i int) (cells []string) {
	for _, row := range rows {
		cells = append(cells, row[i])
	}
	return cells
}

// The last failure is the problem of a cluster whose dials fail, and a denial is not.
func TestProblemNamesTheLastFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet{server("a", dialed(session("c", "1"), 20, 5))}
		h := &status.Handler{Fleet: f.get}
		f[0].Status.Failures = []tunnel.DialFailures{failure("c", tunnel.CodeDenied, 9, 0, "ann"), failure("c", tunnel.CodeRefused, 5, time.Second, "bob")}
		want := "5 of 20 dials failed in the last minutes. The last one: the target refused the connection, it says."
		if got := table(t, get(t, h, "/"), "clusters")[0][5]; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// The only replica that had the agent is gone. Failed dials tell the others that the cluster
// has no agent, and the page says so.
func TestOnlyDialsKnowOfCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		f := fleet{server("b"), {Name: "a", LastError: "no route"}}
		h := &status.Handler{Fleet: f.get}
		if got := headline(get(t, h, "/")); !slices.Equal(got, []string{"Replica a can't be reached."}) {
			t.Errorf("got %q, want nothing of agents: replica a may have some", got)
		}
		f = fleet{server("b")}
		f[0].Status.Failures = []tunnel.DialFailures{
			failure("c", tunnel.CodeNoAgent, 3, time.Second, "ann"), failure("wrong", tunnel.CodeConfig, 1, 0, "bob"), failure("not allowed", tunnel.CodeForbidden, 1, 0, "bob"),
		}
		page := get(t, h, "/")
		if got := headline(page); !slices.Equal(got, []string{"1 of 1 cluster has no agent: c."}) {
			t.Errorf("got %q, want the cluster and no other", got)
		}
		rows := table(t, page, "clusters")
		if want := "No replica that answers knows of an agent. Dials fail, the last one 3 s ago."; len(rows) != 1 || rows[0][0] != "✕ No agent" || rows[0][5] != want {
			t.Errorf("got %q, want %s", rows, want)
		}
		for _, link := range all(all(page, ".failures")[0], "a") {
			if w := request(h, "GET", strings.TrimPrefix(attr(link, "href"), ".")); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "it says") {
				t.Errorf("%s: got %d, want a page with the failure", attr(link, "href"), w.Code)
			}
		}
		time.Sleep(status.Keep)
		if get(t, h, "/"); h.Clusters() != 0 {
			t.Errorf("got %d clusters a day after the last dial, want none", h.Clusters())
		}
	})
}

// When an agent left is what its replica says, and not when somebody looked.
func TestLostAgentSinceWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet{server("a", session("c", "1"))}
		h := &status.Handler{Fleet: f.get}
		get(t, h, "/")
		time.Sleep(18 * time.Second)
		lost := server("a", gone("c"))
		lost.Status.Clusters[0].Last = &tunnel.EndedSession{SessionInfo: session("c", "1"), Ended: time.Now().Add(-7 * time.Second)}
		f = fleet{lost}
		for name, h := range map[string]*status.Handler{"seen before": h, "first looked at now": {Fleet: f.get}} {
			page := parse(t, request(h, "GET", "/?cluster=c").Body.String())
			if got := headline(page); len(got) != 2 || !strings.HasSuffix(got[0], "Gone for 7 s, since 00:00:13 UTC.") || got[1] != "Last held by a." {
				t.Errorf("%s: got %q", name, got)
			}
			if got := table(t, page, "lost")[0][4]; got != "00:00:13 UTC 7 s ago" {
				t.Errorf("%s: got until %q", name, got)
			}
		}
	})
}

// The page of all clusters has room for the latest only.
func TestManyFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet{server("a")}
		for i := range 30 {
			f[0].Status.Failures = append(f[0].Status.Failures, failure(fmt.Sprintf("c%02d", i), tunnel.CodeNoAgent, 1, time.Duration(30-i)*time.Second, ""))
		}
		page := get(t, &status.Handler{Fleet: f.get}, "/")
		if rows := table(t, page, "failures"); len(rows) != 5 || rows[0][1] != "c29" || !strings.Contains(text(page), "The latest of 30") {
			t.Errorf("got %q, want the five latest of 30", rows)
		}
	})
}

// A cluster without an agent tells who was connected, from where, and why no more; also
// if the replica that knows it is gone.
func TestLostAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := session("c", "1")
		s.Program, s.Replica = "causeway-agent v1.2.3", "pod-1"
		f := fleet{server("a", s)}
		h := &status.Handler{Fleet: f.get}
		if page := get(t, h, "/?cluster=c"); len(all(page, ".lost")) > 0 {
			t.Errorf("got a lost agent: %s", text(page))
		}
		s.ID = "2"
		f = fleet{server("a", gone("c")), server("b", s)}
		get(t, h, "/")
		f[0].Status.Clusters[0].Last = &tunnel.EndedSession{SessionInfo: session("c", "1"), Ended: time.Now(), Error: "tunnel: connect c: it was lost"}
		f[1] = tunnel.ReplicaStatus{Name: "b", LastError: "no route"}
		want := [][]string{
			{"a", "agent-c", "192.0.2.1:5000", "00:00:04 UTC", "00:00:04 UTC 2 s ago", "tunnel: connect c: it was lost"},
			{"b", "agent-c, pod-1 causeway-agent v1.2.3", "192.0.2.1:5000", "00:00:00 UTC", "00:00:04 UTC or later", "The replica can't be asked, or has restarted."},
		}
		if diff := cmp.Diff(want, table(t, get(t, h, "/?cluster=c"), "lost")); diff != "" {
			t.Error(diff)
		}
		f[0].Status.Clusters[0].Last.Error = ""
		if got := table(t, get(t, h, "/?cluster=c"), "lost")[0][5]; got != "The agent ended it in order." {
			t.Errorf("got %q", got)
		}
		if found := names(t, get(t, h, "/?q=pod-1")); len(found) != 1 {
			t.Errorf("got %q, want to find the cluster by the agent it had", found)
		}
	})
}

// The page tells which agents and strangers were refused, of all replicas together.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		refusal := func(op string, code tunnel.Code, n uint64, ago time.Duration, text string) tunnel.Refusals {
			return tunnel.Refusals{Op: op, Code: code, Count: n, Last: time.Now().Add(-ago), Text: text, Remote: "192.0.2.9:1"}
		}
		f := fleet{server("a"), server("b"), {Name: "lost"}}
		f[0].Status.Refusals = []tunnel.Refusals{refusal("connect", tunnel.CodeBadRequest, 1000, time.Minute, "no <TLS>")}
		f[1].Status.Refusals = []tunnel.Refusals{refusal("enroll", tunnel.CodeInternal, 1, 0, "c: no space left"), refusal("connect", tunnel.CodeBadRequest, 7, time.Hour, "older")}
		f[2].Status.Refusals = []tunnel.Refusals{refusal("renew", tunnel.CodeRevoked, 1, 0, "an old answer")}
		h := &status.Handler{Fleet: f.get}
		want := [][]string{
			{"Enrolment", "1", "01:00:00 UTC 2 s ago", "192.0.2.9:1", "c: no space left"},
			{"Connection", "1007", "00:59:00 UTC 1 min ago", "192.0.2.9:1", "no <TLS>"},
		}
		if diff := cmp.Diff(want, table(t, get(t, h, "/"), "refusals")); diff != "" {
			t.Error(diff)
		}
	})
}
