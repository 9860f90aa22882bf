package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// loggedLines counts the lines of a provider's log with a message about a Cluster.
func loggedLines(r *bed.Running, message, cluster string) (n int) {
	for line := range strings.Lines(r.Stdout()) {
		if strings.Contains(line, `"msg"="`+message+`"`) && strings.Contains(line, `"name"="`+cluster+`"`) {
			n++
		}
	}
	return n
}

// Two providers of different names don't fight over a Cluster: one of them manages its
// Secret and writes its condition, and both come to rest.
func (m *management) testTwoProviders(t *testing.T) {
	t.Parallel()
	const namespace = "two-providers"
	annotations := m.routeBy(t, namespace, "route", m.squid.route)
	programs := map[string]*bed.Running{}
	for _, name := range []string{"first", "second"} {
		programs[name] = m.startProvider(t, providerInput{Namespaces: []string{namespace}, Config: provider.Config{Name: name, Interval: time.Second}})
	}
	c := m.bear(t, namespace, "prod", m.squid, birth{annotations: annotations})
	for _, program := range programs {
		eventually(t, "each to have seen the Cluster before its Secret", func(context.Context) error {
			if loggedLines(program, "Planned", c.Name) == 0 {
				return errors.New("it has not")
			}
			return nil
		})
	}
	if err := capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly); err != nil {
		t.Fatal(err)
	}
	m.routeReady(t, c, metav1.ConditionTrue)
	s, err := m.stored(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	manager := programs[s.Annotations[provider.AnnotationManager]]
	if manager == nil {
		t.Fatalf("got the manager %q, want one of the two", s.Annotations[provider.AnnotationManager])
	}
	probes := loggedLines(manager, "Probed", c.Name)
	eventually(t, "ten more probes", func(context.Context) error {
		if n := loggedLines(manager, "Probed", c.Name); n < probes+10 {
			return fmt.Errorf("got %d", n-probes)
		}
		return nil
	})
	m.routeReady(t, c, metav1.ConditionTrue)
	for name, program := range programs {
		conditions, secrets := loggedLines(program, "Wrote the condition", c.Name), loggedLines(program, "wrote", c.Name)
		t.Logf("%s: %d writes of the condition, %d of Secrets, %d plans", name, conditions, secrets, loggedLines(program, "Planned", c.Name))
		if conditions > 3 || secrets > 3 {
			t.Errorf("%s wrote the condition %d times, and Secrets %d times, want at most 3", name, conditions, secrets)
		}
	}
}

// A Secret that can't be written is told of with the cause, and not tried again and
// again; when the cause is gone, the route is written.
func (m *management) testImmutable(t *testing.T) {
	t.Parallel()
	const namespace = "immutable"
	annotations := m.routeBy(t, namespace, "route", m.squid.route)
	program := m.startProvider(t, providerInput{Namespaces: []string{namespace}, Config: provider.Config{Interval: time.Second}})
	c := m.bear(t, namespace, "prod", m.squid, birth{annotations: annotations})
	if err := capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly); err != nil {
		t.Fatal(err)
	}
	m.routeReady(t, c, metav1.ConditionTrue)
	s, err := m.stored(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	m.change(t, s, func() { s.Immutable = ptr.To(true) })
	began := time.Now()
	m.change(t, c, func() { c.Annotations[provider.AnnotationTLSServerName] = "kubernetes.default.svc" })
	m.routeReady(t, c, metav1.ConditionFalse, provider.ReasonWriteFailed)
	if err := m.admin.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
		t.Fatal(err)
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == provider.ConditionRoute && !strings.Contains(condition.Message, "immutable") {
			t.Errorf("got %q, want the cause", condition.Message)
		}
	}
	for i := range 4 { // a Cluster that changes all the time waits
		plans := loggedLines(program, "Planned", c.Name)
		m.annotate(t, c, map[string]string{provider.AnnotationGrace: fmt.Sprint(11+i, "m")})
		eventually(t, "another plan", func(context.Context) error {
			if loggedLines(program, "Planned", c.Name) == plans {
				return errors.New("there is none")
			}
			return nil
		})
	}
	tries := loggedLines(program, "Write of a Secret", c.Name)
	took := time.Since(began)
	t.Logf("%d tries in %v", tries, took)
	if most := 1 + int(math.Log2(took.Seconds()+1)); tries > most { // after 1, 2, 4 seconds and so on
		t.Errorf("got %d tries in %v, want at most %d", tries, took, most)
	}
	if n := m.coreEvents(t, namespace, provider.ReasonWriteFailed); n != 1 {
		t.Errorf("got %d Events, want 1", n)
	}
	if err := m.admin.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Secret to lead to the cluster", func(ctx context.Context) error { return m.reaches(ctx, c, m.squid) })
	m.routeReady(t, c, metav1.ConditionTrue)
}

// coreEvents counts how often a namespace's Events with a reason were told.
func (m *management) coreEvents(t *testing.T, namespace, reason string) (n int32) {
	t.Helper()
	var events corev1.EventList
	if err := m.admin.List(t.Context(), &events, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Reason == reason {
			n += max(e.Count, 1)
		}
	}
	return n
}
