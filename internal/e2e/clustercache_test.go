package e2e

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
)

// Cluster API's ClusterCache is connected by the kubeconfigs that a Spec makes,
// each to its own cluster, and so is kubectl. What the extension says is nothing
// to them.
func (m *management) testSpec(t *testing.T) {
	t.Parallel()
	const namespace = "spec"
	input, want := capiInput{Namespace: namespace}, map[string]workload{}
	for _, w := range m.workloads() {
		m.write(t, m.bear(t, namespace, w.name, w, birth{}), w)
		want[w.name] = w
		input.Clusters = append(input.Clusters, w.name)
		s, err := m.secret(t.Context(), namespace, w.name+"-kubeconfig")
		if err != nil {
			t.Fatal(err)
		}
		value := s.Data[kubeconfig.SecretKey]
		if !bytes.Contains(value, []byte(kubeconfig.ExtensionName)) {
			t.Errorf("there is no extension in\n%s", value)
		}
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, value, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := m.bed.Network.Client.Run(t.Context(), m.bed.Kubectl(path, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"))
		if err != nil || out != w.system {
			t.Errorf("kubectl: got %q, %v; want %s", out, err, w.system)
		}
	}
	waitConnected(t, m.startCAPI(t, input), want, time.Time{})
}

// So it is by the kubeconfigs of Cluster API's own that a provider decorates,
// and it stays connected while they are regenerated and the routes change; one
// that starts afterwards takes the new routes.
func (m *management) testClusterCache(t *testing.T) {
	t.Parallel()
	const namespace = "cache"
	began, d := time.Now(), duration(t, "CAUSEWAY_E2E_CLUSTERCACHE", 0)
	input, want := capiInput{Namespace: namespace}, map[string]workload{}
	clusters := map[string]*clusterv1.Cluster{}
	for _, w := range m.workloads() {
		c := m.bear(t, namespace, w.name, w, birth{annotations: m.routeBy(t, namespace, "route-"+w.name, w.route)})
		if err := capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly); err != nil {
			t.Fatal(err)
		}
		clusters[w.name], want[w.name] = c, w
		input.Clusters = append(input.Clusters, w.name)
	}
	m.startProvider(t, providerInput{Namespaces: []string{namespace}})
	manager := m.startCAPI(t, input)
	waitConnected(t, manager, want, time.Time{})
	_, before, err := readStates(manager.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	wait(t, d/3)
	for name, c := range clusters {
		m.regenerate(t, c)
		eventually(t, name+" to be decorated", func(ctx context.Context) error { return m.reaches(ctx, c, want[name]) })
	}
	waitConnected(t, manager, want, time.Now())
	wait(t, d/3)
	private := newPrivateProxy(t, m.bed)
	m.switchRoute(t, clusters["squid"], want["squid"], kubeconfig.Route{ProxyURL: private.url()})
	m.switchRoute(t, clusters["dante"], want["dante"], m.squid.route)
	wait(t, time.Until(began.Add(d)))
	waitConnected(t, manager, want, time.Now())
	last, lost, err := readStates(manager.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	// Before it was connected, it may have tried. A single probe may fail on a
	// machine that has too much to do: what waited for one that succeeded would
	// not have seen another.
	if lost = lost[len(before):]; len(lost) > 0 && d > 0 || slices.ContainsFunc(lost, capiState.isLost) {
		t.Errorf("lost: %+v", lost)
	}
	t.Logf("after %v: %+v", time.Since(began), slices.Collect(maps.Values(last)))
	dialed := private.dialed.Load()
	waitConnected(t, m.startCAPI(t, input), want, time.Time{})
	if private.dialed.Load() == dialed {
		t.Error("the new route was not taken")
	}
}

// switchRoute leads a Cluster by another route, and waits until it is taken.
func (m *management) switchRoute(t *testing.T, c *clusterv1.Cluster, w workload, r kubeconfig.Route) {
	t.Helper()
	_, before, _, err := m.entry(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	m.annotate(t, c, m.routeBy(t, c.Namespace, "next-"+c.Name, r))
	eventually(t, c.Name+" to have the new route", func(ctx context.Context) error {
		_, now, _, err := m.entry(ctx, c)
		switch {
		case err != nil:
			return bed.Stop(err)
		case now == before:
			return errors.New("it has the one before")
		}
		return m.reaches(ctx, c, w)
	})
}
