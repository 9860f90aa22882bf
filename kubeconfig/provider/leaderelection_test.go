package provider_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

func elected(b *bed, identity string) {
	b.opts.LeaderElection = &provider.LeaderElection{
		Namespace: "system", Identity: identity,
		Lease: 3 * time.Second, Renew: 2 * time.Second, Retry: 100 * time.Millisecond,
	}
}

func (b *bed) leader() string {
	u := b.Get(apitest.Named("leases", "system", "kubeconfig-provider"))
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
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	elected(b, "first")
	first := b.run(t)
	b.Until(t, "the first's work", func() bool { return b.Wrote("PATCH clusters") == 1 })
	elected(b, "second")
	second := b.run(t)
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	b.Until(t, "the second", func() bool { return b.leader() == "second" })
	b.Set("clusters", cluster("a", "two", route("p1:1")))
	b.Until(t, "the second's work", func() bool { return b.Wrote("PATCH clusters") == 2 })
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	if got := b.Wrote("POST secrets"); got != 2 || b.Wrote("PUT secrets") != 0 || b.Wrote("POST events") != 2 {
		t.Errorf("got %v, want each Secret and Event once", b.AllWrites())
	}
	if got := b.leader(); got != "" {
		t.Errorf("got leader %q, want the Lease released", got)
	}
}

// TestLostLease: one that can't renew stops working, and says so.
func TestLostLease(t *testing.T) {
	b := newBed(t)
	elected(b, "first")
	leading := make(chan bool, 2)
	b.opts.Hooks.Leading = func(on bool) { leading <- on }
	run := b.run(t)
	if !<-leading {
		t.Fatal("got false first, want true")
	}
	b.SetFault(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/leases") {
			return http.StatusInternalServerError
		}
		return 0
	})
	if <-leading {
		t.Error("got true again, want false")
	}
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.SetFault(nil)
	if err := run.stop(); !errors.Is(err, provider.ErrLostLease) {
		t.Errorf("got %v, want ErrLostLease", err)
	}
	if got := b.AllWrites(); len(got) != 0 {
		t.Errorf("got %v after the loss, want no write", got)
	}
}
