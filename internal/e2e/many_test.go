package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// Of many Clusters each is reconciled, by one probe and in a short time, and
// who looks at them again has nothing to write.
func (m *management) testMany(t *testing.T) {
	const namespace = "many"
	n := manyClusters(t)
	annotations := m.routeBy(t, namespace, "route", m.squid.route)
	m.bearMany(t, namespace, n)
	began := time.Now()
	program := m.run(t, "--namespace", namespace, "--proxy-url", annotations[provider.AnnotationProxyURL], "--route-secret", namespace+"/route")
	m.waitAllReady(t, namespace, n)
	took := time.Since(began)
	memory, err := program.PeakMemory()
	if err != nil {
		t.Fatal(err)
	}
	program.Stop()
	t.Logf("%d Clusters were reconciled in %v, with %d MB of memory; the log has %d bytes", n, took, memory>>20, len(program.Stderr()))
	if memory > 200<<20 {
		t.Errorf("it took %d MB, want 200", memory>>20)
	}
	if took > time.Minute {
		t.Errorf("it took %v, want a minute", took)
	}
	before, err := m.Writes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	program = m.startProvider(t, providerInput{Namespaces: []string{namespace}, Config: provider.Config{Defaults: provider.Settings{
		ProxyURL: annotations[provider.AnnotationProxyURL], RouteSecret: namespace + "/route"}}})
	waitAllPlanned(t, program, n)
	after, err := m.Writes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, count := range after {
		_, resource, _ := strings.Cut(what, " ")
		switch resource {
		case "secrets", "clusters.cluster.x-k8s.io", "clusters/status.cluster.x-k8s.io", "events", "events.events.k8s.io":
			t.Logf("%s: %d in all, %d in the second pass", what, count, count-before[what])
			if count != before[what] {
				t.Errorf("the second pass wrote: %s, %d times", what, count-before[what])
			}
		}
	}
	if after["PUT secrets"] < n {
		t.Errorf("got %v, want %d Secrets to have been written in all", after, n)
	}
}

func manyClusters(t *testing.T) int {
	t.Helper()
	n := 100
	if text := os.Getenv("CAUSEWAY_E2E_CLUSTERS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("CAUSEWAY_E2E_CLUSTERS: %v", err)
		}
	}
	return n
}

// bearMany makes Clusters with the Secrets that Cluster API makes.
func (m *management) bearMany(t *testing.T, namespace string, n int) {
	t.Helper()
	makeMany(t, n, func(i int) error {
		c := m.bear(t, namespace, fmt.Sprintf("c%04d", i), m.squid, birth{})
		return capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly)
	})
}

// makeMany makes n of something, some at a time.
func makeMany(t *testing.T, n int, one func(i int) error) {
	t.Helper()
	numbers := make(chan int)
	var making sync.WaitGroup
	for range 8 {
		making.Go(func() {
			for i := range numbers {
				if err := one(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	making.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// waitAllReady waits until all Clusters of a namespace say that they are
// reached by their routes.
func (m *management) waitAllReady(t *testing.T, namespace string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	err := bed.Poll(ctx, "all Clusters to be reached", func(ctx context.Context) error {
		var list clusterv1.ClusterList
		if err := m.admin.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		ready := 0
		for _, c := range list.Items {
			for _, condition := range c.Status.Conditions {
				if condition.Type == provider.ConditionRoute && condition.Status == metav1.ConditionTrue {
					ready++
				}
			}
		}
		if ready != n {
			return fmt.Errorf("%d of %d are", ready, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// waitAllPlanned waits until a provider that starts has probed each Cluster,
// and made its plan by that.
func waitAllPlanned(t *testing.T, program *bed.Running, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	err := bed.Poll(ctx, "all Clusters to be planned", func(context.Context) error {
		probed, done := map[string]bool{}, map[string]bool{}
		for line := range strings.Lines(program.Stdout()) {
			_, rest, _ := strings.Cut(line, `"name"="`)
			name, _, ok := strings.Cut(rest, `"`)
			switch {
			case !ok:
			case strings.Contains(line, `"msg"="Probed"`):
				probed[name] = true
			case strings.Contains(line, `"msg"="Planned"`) && probed[name]:
				done[name] = true
			}
		}
		if len(done) != n {
			return errors.Join(fmt.Errorf("%d of %d are", len(done), n), program.Ended())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
