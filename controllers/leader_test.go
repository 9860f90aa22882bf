package controllers_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/causewayproject/causeway/internal/test/apitest"
)

func elect(b *bed) {
	b.opts.LeaderElection, b.opts.LeaderElectionNamespace, b.opts.LeaderElectionID = true, "system", "provider"
	b.opts.LeaderElectionReleaseOnCancel = true
	b.opts.LeaseDuration, b.opts.RenewDeadline, b.opts.RetryPeriod = ptr.To(3*time.Second), ptr.To(2*time.Second), ptr.To(100*time.Millisecond)
}

func (b *bed) leader() string {
	u := b.Get(apitest.Named("leases", "system", "provider"))
	if u == nil {
		return ""
	}
	spec, _ := u.Object["spec"].(map[string]any)
	name, _ := spec["holderIdentity"].(string)
	return name
}

// TestLeaders: one works, the other takes over, and nothing is written twice.
func TestLeaders(t *testing.T) {
	b := newBed(t)
	elect(b)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	stop := b.run(t)
	b.Until(t, "the first's work", func() bool { return b.Wrote("PATCH clusters") == 1 && b.Wrote("POST events") == 2 })
	first := b.leader()
	stopSecond := b.run(t)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.Until(t, "the second", func() bool { return b.leader() != "" && b.leader() != first })
	b.Set("clusters", cluster("a", "two", route("p1:1")))
	b.Until(t, "the second's work", func() bool { return b.Wrote("PATCH clusters") == 2 })
	if err := stopSecond(); err != nil {
		t.Fatal(err)
	}
	if got := b.Wrote("POST secrets"); got != 2 || b.Wrote("PUT secrets") != 0 {
		t.Errorf("got %v, want each Secret once", b.AllWrites())
	}
	if got := b.leader(); got != "" {
		t.Errorf("got leader %q, want the Lease released", got)
	}
}

// TestLostLease: one that can't renew stops working.
func TestLostLease(t *testing.T) {
	b := newBed(t)
	elect(b)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	stop := b.run(t)
	b.Until(t, "the first's work", func() bool { return b.Wrote("PATCH clusters") == 1 })
	before := b.Wrote("POST secrets")
	b.SetFault(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/leases") {
			return http.StatusInternalServerError
		}
		return 0
	})
	b.Until(t, "the end", func() bool { return b.counted(b.plans, "ended") == 1 })
	b.Set("clusters", cluster("a", "two", route("p1:1")))
	b.SetFault(nil)
	if err := stop(); err == nil || !strings.Contains(err.Error(), "leader election lost") {
		t.Errorf("got %v, want that the leader election was lost", err)
	}
	if got := b.Wrote("POST secrets"); got != before {
		t.Errorf("got %d more Secrets after the loss, want none", got-before)
	}
}
