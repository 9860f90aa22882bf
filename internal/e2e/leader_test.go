package e2e

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// The leader is killed while it has much to do: the other does the rest, and
// nothing is done twice.
func (m *management) testLeader(t *testing.T) {
	t.Parallel()
	const namespace, clusters = "leader", 20
	annotations := m.routeBy(t, namespace, "route", m.squid.route)
	annotations[provider.AnnotationProbe] = "off" // it would tell of more than the route
	var all []*clusterv1.Cluster
	for i := range clusters {
		all = append(all, m.bearDecorated(t, namespace, fmt.Sprintf("c%02d", i), annotations))
	}
	programs := map[string]*bed.Running{}
	for _, name := range []string{"one", "two"} {
		programs[name] = m.startProvider(t, providerInput{Namespaces: []string{namespace}, Leader: &leaderInput{
			Namespace: namespace, Identity: name, Lease: 5 * time.Second, Renew: 4 * time.Second, Retry: 500 * time.Millisecond}})
	}
	m.waitDecorated(t, all...)
	for _, c := range all { // said last
		m.routeReady(t, c, metav1.ConditionUnknown, provider.ReasonNotProbed)
	}
	first := m.leader(t, namespace)
	written := m.watchWrites(t, namespace)
	for i, c := range all {
		m.regenerate(t, c)
		if i == clusters/2 {
			programs[first].Stop()
		}
	}
	m.waitDecorated(t, all...)
	if now := m.leader(t, namespace); now == first {
		t.Errorf("%s is still the leader", now)
	}
	// What would be written twice is written before a new Cluster has its turn.
	m.waitDecorated(t, m.bearDecorated(t, namespace, "witness", annotations))
	total := 0
	for _, c := range all {
		if n := written()[c.Name+"-kubeconfig"]; n != 2 {
			t.Errorf("%s-kubeconfig was written %d times, want once by Cluster API, once by a provider", c.Name, n)
		}
		// The leader that was killed may have had no time to tell of its last.
		told := m.events(t, c, provider.ReasonReapplied)
		if total += told; told > 1 {
			t.Errorf("%s has %d Events %s, want 1", c.Name, told, provider.ReasonReapplied)
		}
	}
	if total < clusters/2 {
		t.Errorf("there are %d Events %s for %d Clusters", total, provider.ReasonReapplied, clusters)
	}
}

// bearDecorated makes a Cluster with a Secret that is to be decorated.
func (m *management) bearDecorated(t *testing.T, namespace, name string, annotations map[string]string) *clusterv1.Cluster {
	t.Helper()
	c := m.bear(t, namespace, name, m.squid, birth{annotations: annotations})
	if err := capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly); err != nil {
		t.Fatal(err)
	}
	return c
}

// waitDecorated waits until the kubeconfigs of Clusters have a proxy.
func (m *management) waitDecorated(t *testing.T, clusters ...*clusterv1.Cluster) {
	t.Helper()
	eventually(t, "the kubeconfigs to have a proxy", func(ctx context.Context) error {
		for _, c := range clusters {
			if _, proxy, _, err := m.entry(ctx, c); err != nil || proxy == "" {
				return fmt.Errorf("%s has the proxy %q, %v", c.Name, proxy, err)
			}
		}
		return nil
	})
}

// leader returns who holds the Lease.
func (m *management) leader(t *testing.T, namespace string) string {
	t.Helper()
	var leases coordinationv1.LeaseList
	if err := m.admin.List(t.Context(), &leases, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if len(leases.Items) != 1 {
		t.Fatalf("got %d Leases, want 1", len(leases.Items))
	}
	return ptr.Deref(leases.Items[0].Spec.HolderIdentity, "")
}

// watchWrites counts the changes of Secrets by their names, from now on, until
// the test ends.
func (m *management) watchWrites(t *testing.T, namespace string) (counts func() map[string]int) {
	t.Helper()
	var now corev1.SecretList
	if err := m.admin.List(t.Context(), &now, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	w, err := m.admin.Watch(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: now.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards written
	written := map[string]int{}
	var watching sync.WaitGroup
	watching.Go(func() {
		for e := range w.ResultChan() {
			if s, ok := e.Object.(*corev1.Secret); ok && e.Type == watch.Modified {
				mu.Lock()
				written[s.Name]++
				mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		w.Stop()
		watching.Wait()
	})
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(written)
	}
}

// events counts the Events of a Cluster that have a reason.
func (m *management) events(t *testing.T, c *clusterv1.Cluster, reason string) (n int) {
	t.Helper()
	var events eventsv1.EventList
	if err := m.admin.List(t.Context(), &events, client.InNamespace(c.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Regarding.Name == c.Name && e.Reason == reason {
			n++
		}
	}
	return n
}
