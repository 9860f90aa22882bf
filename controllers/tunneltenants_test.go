package controllers_test

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// TestTunnelTenants: a Secret that somebody has put in the way is taken over if it can be
// what a restore has left, and otherwise neither written nor deleted.
func TestTunnelTenants(t *testing.T) {
	ref := func(kind, name, uid string) map[string]any {
		return map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "uid": uid}
	}
	for _, tt := range []struct {
		name   string
		kind   string // the Secret's type
		owners func(uid string) []any
		taken  bool
	}{
		{"restored without its owner", "Opaque", func(string) []any { return nil }, true},
		{"restored with the former owner", "Opaque", func(string) []any { return []any{ref("Cluster", "one", "gone")} }, true},
		{"moved", "Opaque", func(uid string) []any { return []any{ref("Cluster", "one", uid)} }, true},
		{"the label only", "kubernetes.io/service-account-token", func(string) []any { return nil }, false},
		{"another Cluster's", "Opaque", func(string) []any { return []any{ref("Cluster", "two", "uid-two")} }, false},
		{"the UID with another name", "Opaque", func(uid string) []any { return []any{ref("Cluster", "two", uid)} }, false},
		{"the UID with another kind", "Opaque", func(uid string) []any { return []any{ref("Machine", "one", uid)} }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newTunnelBed(t)
			one := b.labelled("one")
			secret := secretWith("a", "one-tunnel-agent", map[string]any{"cluster.x-k8s.io/cluster-name": "one", provider.LabelTunnel: "true"}, "bait", "bait")
			secret["type"] = tt.kind
			secret["metadata"].(map[string]any)["ownerReferences"] = tt.owners(string(b.Get(one).GetUID()))
			b.Set("secrets", secret)
			b.runTunnel(t)
			told := "TunnelWriteFailed"
			if tt.taken {
				told = "TunnelSecretAdopted"
			}
			b.Until(t, "the route, and an Event", func() bool {
				return b.Get(routeOf("one")) != nil && (tt.name == "moved" || slices.Contains(b.eventReasons(), told))
			})
			b.Until(t, "the agent's", func() bool { return !tt.taken || b.value(agentSecret("one"), provider.KeyAgentInvitation) != "" })
			b.Change(one, func(u *unstructured.Unstructured) { u.SetLabels(nil) })
			b.Until(t, "the end", func() bool { return b.Get(routeOf("one")) == nil && len(b.records()) == 0 })
			left := b.Get(agentSecret("one"))
			if (left == nil) != tt.taken || left != nil && b.value(agentSecret("one"), provider.KeyAgentInvitation) != "" {
				t.Errorf("it is there: %t; want it taken, and deleted: %t", left != nil, tt.taken)
			}
		})
	}
}

// TestTunnelUnlabelledAfterRestore: what a restore has left is deleted, too, when the label has
// gone with it.
func TestTunnelUnlabelledAfterRestore(t *testing.T) {
	b, one := settledOne(t)
	b.Change(one, pause(true))
	b.Change(agentSecret("one"), func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) })
	b.Change(routeOf("one"), func(u *unstructured.Unstructured) {
		refs := u.GetOwnerReferences()
		refs[0].UID = "gone"
		u.SetOwnerReferences(refs)
	})
	b.Change(one, func(u *unstructured.Unstructured) {
		u.SetLabels(nil)
		unstructured.RemoveNestedField(u.Object, "spec", "paused")
	})
	b.Until(t, "the end", func() bool { return len(b.records()) == 0 })
	b.Until(t, "an Event", func() bool { return slices.Contains(b.eventReasons(), "TunnelSecretAdopted") })
	if agent, route := b.Get(agentSecret("one")) != nil, b.Get(routeOf("one")) != nil; agent || route {
		t.Errorf("the agent's Secret is left: %t, the route's: %t; want both deleted", agent, route)
	}
}

// TestTunnelScope: a Cluster that was paused, or made anew, after it was read gets nothing.
// The agents of the paused one stay, and those of the former one end.
func TestTunnelScope(t *testing.T) {
	t.Parallel()
	b := newTunnelBed(t)
	one, two := b.labelled("one"), b.labelled("two")
	b.runTunnel(t)
	b.settled("one")
	b.settled("two")
	b.Hold("clusters", true)
	b.Change(one, pause(true))
	b.Remove(two)
	b.labelled("two")
	asked := map[string]*atomic.Int32{"one": {}, "two": {}}
	b.SetFault(func(r *http.Request) int {
		if _, name, ok := strings.Cut(r.URL.Path, "/clusters/"); ok && r.Method == http.MethodGet {
			asked[name].Add(1)
			b.Touch()
		}
		return 0
	})
	for _, name := range []string{"one", "two"} {
		before := asked[name].Load()
		b.Remove(routeOf(name))
		b.Until(t, "a second try, so that the first has ended", func() bool { return asked[name].Load() > before+1 })
		if b.Get(routeOf(name)) != nil {
			t.Errorf("%s has the Secret again", name)
		}
	}
	b.Hold("clusters", false)
	b.Until(t, "the Secret of the new one", func() bool { return b.Get(routeOf("two")) != nil })
	if b.Get(routeOf("one")) != nil || b.read(func() bool { return b.revoked["a/one"] > 0 || b.revoked["a/two"] == 0 }) {
		t.Errorf("the paused one has a Secret: %t; revoked: %v", b.Get(routeOf("one")) != nil, b.revoked)
	}
	if got := b.Get(routeOf("two")).GetOwnerReferences(); len(got) != 1 || got[0].UID != b.Get(two).GetUID() {
		t.Errorf("got owners %v, want the new Cluster", got)
	}
}
