package controllers_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/noproxy"
)

// followed is what a ClusterFacts has told.
type followed struct {
	mu      sync.Mutex // guards the fields below
	facts   []noproxy.Cluster
	unknown []controllers.UnknownFact
}

func (b *proxyBed) followFacts() *followed {
	b.t.Helper()
	got := new(followed)
	f := &controllers.ClusterFacts{Changed: func(facts noproxy.Cluster, unknown []controllers.UnknownFact) {
		got.mu.Lock()
		got.facts, got.unknown = append(got.facts, facts), unknown
		got.mu.Unlock()
		b.Touch()
	}}
	mgr := b.manager()
	if err := f.SetupWithManager(mgr); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("got %v of Start, want nil", err)
		}
	})
	return got
}

func (f *followed) last() (n int, facts noproxy.Cluster, unknown string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var texts []string
	for _, u := range f.unknown {
		texts = append(texts, u.Field+": "+u.Reason)
	}
	if len(f.facts) > 0 {
		facts = f.facts[len(f.facts)-1]
	}
	return len(f.facts), facts, strings.Join(texts, "\n")
}

func nodeWith(name string, networks ...any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}, "spec": map[string]any{"podCIDRs": networks}}
}

func (b *proxyBed) kubeadm(text string) {
	b.Set("configmaps", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "kube-system", "name": "kubeadm-config"},
		"data": map[string]any{"ClusterConfiguration": text}})
}

// All that a cluster knows of itself is found, once, and followed.
func TestClusterFacts(t *testing.T) {
	b := newProxyBed(t)
	b.kubeadm("controlPlaneEndpoint: api.example.com:6443\nnetworking:\n  dnsDomain: corp.local\n  podSubnet: 10.244.0.0/16,fd00:1::/56\n  serviceSubnet: 10.96.0.0/16\n")
	b.Set("servicecidrs", map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": map[string]any{"name": "kubernetes"},
		"spec": map[string]any{"cidrs": []any{"10.96.0.0/16"}}})
	b.Set("services", map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"namespace": "kube-system", "name": "kube-dns"},
		"spec": map[string]any{"clusterIP": "10.96.0.10", "clusterIPs": []any{"10.96.0.10"}}})
	b.Set("nodes", nodeWith("one", "10.244.0.0/24")) // within kubeadm's
	got := b.followFacts()
	b.Until(t, "the facts", func() bool { n, _, _ := got.last(); return n > 0 })
	_, facts, unknown := got.last()
	want := noproxy.Cluster{PodCIDRs: []string{"10.244.0.0/16", "fd00:1::/56"}, ServiceCIDRs: []string{"10.96.0.0/16"}, ServiceDomain: "corp.local",
		ControlPlaneHosts: []string{"api.example.com"}, Extra: []string{"10.96.0.10"}}
	if diff := cmp.Diff(want, facts); diff != "" {
		t.Errorf("want - got +:\n%s", diff)
	}
	if unknown != "NodeCIDRs: no object has the networks of nodes" {
		t.Errorf("got %q unknown", unknown)
	}
	b.Set("servicecidrs", map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": map[string]any{"name": "more"},
		"spec": map[string]any{"cidrs": []any{"10.97.0.0/16"}}})
	b.Until(t, "the network that was added", func() bool {
		_, facts, _ := got.last()
		return len(facts.ServiceCIDRs) == 1 && facts.ServiceCIDRs[0] == "10.96.0.0/15"
	})
	b.kubeadm("networking: [")
	b.Until(t, "a word about what is no YAML", func() bool {
		_, _, unknown := got.last()
		return strings.Contains(unknown, "ClusterConfiguration: ConfigMap kube-system/kubeadm-config: not YAML")
	})
	want.ServiceCIDRs = []string{"10.96.0.0/15"}
	if _, facts, _ := got.last(); !cmp.Equal(facts, want) {
		t.Errorf("got %v, want what was there before: %v", facts, want)
	}
}

// Without kubeadm the nodes' networks are taken, joined; what may not be read is named.
func TestClusterFactsUnknown(t *testing.T) {
	b := newProxyBed(t)
	b.SetFault(func(r *http.Request) int {
		switch {
		case strings.HasSuffix(r.URL.Path, "/servicecidrs"):
			return http.StatusNotFound
		case strings.HasSuffix(r.URL.Path, "/services"):
			return http.StatusForbidden
		}
		return 0
	})
	for n, network := range []string{"10.1.0.0/24", "10.1.1.0/24", "10.1.2.0/24"} {
		b.Set("nodes", nodeWith(string(rune('a'+n)), network, "fd00::/64"))
	}
	got := b.followFacts()
	b.Until(t, "the facts", func() bool { n, _, _ := got.last(); return n > 0 })
	_, facts, unknown := got.last()
	if diff := cmp.Diff(noproxy.Cluster{PodCIDRs: []string{"10.1.0.0/23", "10.1.2.0/24", "fd00::/64"}}, facts); diff != "" {
		t.Errorf("want - got +:\n%s", diff)
	}
	for _, want := range []string{"ServiceCIDRs: ConfigMap kube-system/kubeadm-config: it has none; ServiceCIDRs: ", "ServiceDomain: ", "NodeCIDRs: "} {
		if !strings.Contains(unknown, want) {
			t.Errorf("got %q unknown, want %q", unknown, want)
		}
	}
	if strings.Contains(unknown, "PodCIDRs") {
		t.Errorf("got %q unknown", unknown)
	}
	b.Remove(apitest.Named("nodes", "", "a"))
	b.Set("nodes", nodeWith("d", "10.1.3.0/24"))
	b.Until(t, "the change", func() bool {
		_, facts, _ := got.last()
		return cmp.Equal(facts.PodCIDRs, []string{"10.1.1.0/24", "10.1.2.0/23", "fd00::/64"})
	})
}
