package controllers_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// storingServer is a server of the tunnel with its state in Secrets.
type storingServer struct {
	*tunnel.Server
	b *tunnelBed
}

func (s storingServer) Fleet(ctx context.Context) []tunnel.ReplicaStatus { return s.b.Fleet(ctx) }

// useStore has the reconciler with such a server.
func (b *tunnelBed) useStore(t *testing.T) {
	t.Helper()
	client, err := clientset.NewForConfig(b.Config())
	if err != nil {
		t.Fatal(err)
	}
	server := &tunnel.Server{Authority: b.server.Authority, Store: &kubernetes.SecretStore{Client: client, Namespace: "system", Prefix: "tunnel"}}
	t.Cleanup(func() { server.Close() })
	b.r.Server = storingServer{server, b}
}

// kept counts the Secrets in the server's namespace, by the kind in their names.
func (b *tunnelBed) kept() map[string]int {
	kinds := map[string]int{}
	for _, u := range b.List("secrets") {
		if kind, ok := strings.CutPrefix(u.GetName(), "tunnel-"); ok && u.GetNamespace() == "system" {
			kind, _, _ = strings.Cut(kind, "-")
			kinds[kind]++
		}
	}
	return kinds
}

// TestTunnelRevoked: a Cluster whose agents were all revoked gets another invitation at once.
func TestTunnelRevoked(t *testing.T) {
	t.Parallel()
	b := newTunnelBed(t)
	b.useStore(t)
	b.labelled("one")
	b.runTunnel(t)
	b.settled("one")
	first := b.value(agentSecret("one"), provider.KeyAgentInvitation)
	if err := b.r.Server.(storingServer).RevokeCluster(t.Context(), "a/one"); err != nil {
		t.Fatal(err)
	}
	b.Until(t, "an invitation", func() bool { return b.value(agentSecret("one"), provider.KeyAgentInvitation) != first })
}

// TestTunnelAgentChurn: an agent that connects and leaves all the time causes few looks, one
// question about the invitation in a minute, and no writes. The last change is seen.
func TestTunnelAgentChurn(t *testing.T) {
	t.Parallel()
	b := newTunnelBed(t)
	b.useStore(t)
	var lists atomic.Int32 // of tokens; one question is two
	b.SetFault(func(r *http.Request) int {
		if q := r.URL.Query(); strings.HasPrefix(q.Get("labelSelector"), kubernetes.LabelToken) {
			lists.Add(1)
			b.Touch()
		}
		return 0
	})
	one := b.labelled("one")
	b.runTunnel(t)
	b.settled("one")
	look := func() { // a minute later
		b.change(func() { b.ahead += time.Minute })
		b.Change(one, func(u *unstructured.Unstructured) { annotate(u, provider.Prefix+"look", b.clock().String()) })
	}
	look()
	lists.Store(0)
	began := time.Now()
	for range 3 {
		b.connect("a/one", "x")
		b.untilLooked(1)
		b.connect("a/one")
		b.untilLooked(1)
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("six looks took %v, want half a second between two", took)
	}
	if n := lists.Load(); n != 2 {
		t.Errorf("got %d requests for tokens, want 2", n)
	}
	look()
	b.Until(t, "a question after the last change", func() bool { return lists.Load() == 4 })
	b.untilCondition(one, "False Disconnected")
	writes := b.Wrote("PATCH clusters")
	for n := range 4 {
		b.change(func() { b.lastErr = fmt.Sprint("end ", n) })
		b.untilLooked(1)
	}
	if got := b.Wrote("PATCH clusters"); got != writes {
		t.Errorf("got %d writes for sessions that ended, want none", got-writes)
	}
	look()
	b.untilCondition(one, "False Disconnected: no agent is connected; the last session ended with: end 3")
}

// TestTunnelChurn: a namespace whose Clusters come and go under new names leaves no tokens,
// and a bounded number of revocations and of moved ones; then it holds up only itself.
func TestTunnelChurn(t *testing.T) {
	const most, cycles = 3, 6
	b := newTunnelBed(t)
	b.useStore(t)
	b.r.SetMostEnded(most)
	b.runTunnel(t)
	for n := range cycles {
		name := fmt.Sprint("one", n)
		key := b.labelled(name)
		if n < most {
			b.Until(t, "the invitation of "+name, func() bool { return b.Get(agentSecret(name)) != nil && b.Get(routeOf(name)) != nil })
		} else {
			b.untilCondition(key, "False NoInvitation: machines can't get an agent: the namespace has had 3 tunnels of Clusters that are gone: a record of each is kept for 8 days")
		}
		if n == 1 {
			b.Change(key, pause(true))
		}
		b.Remove(key)
		b.Until(t, "the end of "+name, func() bool {
			return b.kept()["record"] == min(n, 1) && (n == 1 && b.value(b.recordKey("a/one1"), "moved") != "" || b.Get(agentSecret(name)) == nil)
		})
	}
	if got := b.kept(); got["revoked"] != most-1 || got["record"] != 1 || len(got) != 3 { // and the moved one's tokens
		t.Errorf("got %v, want %d revocations and the record of the moved one", got, most-1)
	}
	for _, where := range []struct{ namespace, name string }{{"a", "one0"}, {"b", "new"}} { // a former name, another tenant
		c := cluster(where.namespace, where.name, nil)
		c["metadata"].(map[string]any)["labels"] = map[string]any{provider.LabelTunnel: "true"}
		b.Set("clusters", c)
		b.untilCondition(apitest.Named("clusters", where.namespace, where.name), "False NeverConnected")
	}
	// A revocation that is over makes room.
	late := b.labelled("late")
	b.untilCondition(late, "False NoInvitation")
	for _, u := range b.List("secrets") {
		if strings.HasPrefix(u.GetName(), "tunnel-revoked-") {
			b.Remove(apitest.Named("secrets", "system", u.GetName()))
		}
	}
	b.Change(late, func(u *unstructured.Unstructured) {
		unstructured.SetNestedField(u.Object, int64(7443), "spec", "clusterNetwork", "apiServerPort")
	})
	b.untilCondition(late, "False NeverConnected")
}
