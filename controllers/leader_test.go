package controllers_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig/provider"
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
	t.Parallel()
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

// untilAsked waits until the API server was asked of a Cluster, and what it said was minded.
func (b *bed) untilAsked() {
	b.t.Helper()
	var asked atomic.Int32
	b.SetFault(func(r *http.Request) int {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/clusters/") {
			asked.Add(1)
			b.Touch()
		}
		return 0
	})
	b.Until(b.t, "two questions", func() bool { return asked.Load() > 1 })
}

// TestLateClusters: a leader that was frozen does not write what a former annotation says.
func TestLateClusters(t *testing.T) {
	b := newBed(t)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.run(t)
	b.Until(t, "the condition", func() bool { return b.Wrote("PATCH clusters") == 1 })
	b.Hold("clusters", true)
	b.Change(apitest.Named("clusters", "a", "one"), func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationProxyURL, "http://p2:1") })
	b.setData(kubeconfigOf("a", "one"), "value", "http://p2:1") // by another leader
	b.untilAsked()
	if got := b.value(kubeconfigOf("a", "one"), "value"); got != "http://p2:1" {
		t.Errorf("got %s, want what the other leader wrote", got)
	}
	b.Hold("clusters", false)
}
