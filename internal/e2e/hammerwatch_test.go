package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// watch judges each version of the kubeconfig Secrets, until the test ends.
func (h *hammering) watch() {
	for _, ns := range []string{flagSpace, moveSpace} {
		w, err := h.admin.Watch(h.t.Context(), &corev1.SecretList{}, client.InNamespace(ns))
		if err != nil {
			h.t.Fatal(err)
		}
		var watching sync.WaitGroup
		watching.Go(func() {
			for e := range w.ResultChan() {
				if s, ok := e.Object.(*corev1.Secret); ok && e.Type != apiwatch.Deleted {
					h.judge(e.Type, s)
				}
			}
			if h.t.Context().Err() == nil {
				h.t.Error("the watch of the Secrets has ended")
			}
		})
		h.t.Cleanup(func() {
			w.Stop()
			watching.Wait()
		})
	}
}

func (h *hammering) judge(kind apiwatch.EventType, s *corev1.Secret) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cluster, first := strings.CutSuffix(s.Name, "-kubeconfig")
	if !first {
		cluster = strings.TrimSuffix(s.Name, "-proxied")
	}
	if cluster == s.Name || first == h.second[cluster] {
		return
	}
	h.seen++
	key, routed := s.Namespace+"/"+s.Name, h.doors.routed(s.Data[kubeconfig.SecretKey])
	if before := h.latest[key]; before != nil && routed && !h.doors.routed(before.Data[kubeconfig.SecretKey]) {
		h.answers[key] = append(h.answers[key], time.Now())
	}
	h.latest[key] = s
	// Where there is a control plane, only Cluster API makes the Secret.
	made := kind == apiwatch.Added && first && !h.owned[cluster]
	if made {
		h.wrote[s.ResourceVersion] = true
	}
	if !routed {
		h.direct[s.ResourceVersion] = fmt.Sprintf("%s %s/%s of %s, manager %q, phase %q", kind, s.Namespace, s.Name,
			time.Now().Format(time.TimeOnly), s.Annotations[provider.AnnotationManager], s.Annotations[provider.AnnotationPhase])
	}
}

// read makes requests all the time, by the latest versions.
func (h *hammering) read() {
	var reading sync.WaitGroup
	h.t.Cleanup(reading.Wait)
	for i := range 2 {
		reading.Go(func() {
			tick := time.NewTicker(2 * hammerPace)
			defer tick.Stop()
			for n := i; h.t.Context().Err() == nil; n += 2 {
				h.mu.Lock()
				keys := slices.Sorted(maps.Keys(h.latest))
				var s *corev1.Secret
				if len(keys) > 0 {
					s = h.latest[keys[n%len(keys)]]
				}
				h.mu.Unlock()
				if s != nil {
					h.doors.ask(h.t.Context(), s) // it may fail
				}
				select {
				case <-tick.C:
				case <-h.t.Context().Done():
				}
			}
		})
	}
}

// settle waits, without faults, until each Secret has a route. One that Cluster API
// made anew gets it when a probe has passed.
func (h *hammering) settle(what string) {
	h.t.Helper()
	h.api.setFaults(false)
	for i := range hammerClusters {
		h.doors.block(i, false)
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), hammerTruth) // a provider may have to start first
	defer cancel()
	err := bed.Poll(ctx, what, func(context.Context) error {
		for _, c := range h.clusters {
			s, err := h.led(h.t.Context(), c) // the last error tells more than the end of ctx
			if err != nil {
				return err
			}
			if !h.doors.routed(s.Data[kubeconfig.SecretKey]) || s.Annotations[provider.AnnotationManager] == "" {
				return fmt.Errorf("%s/%s has none: immutable %t, annotations %v", c.Namespace, c.Name, ptr.Deref(s.Immutable, false), s.Annotations)
			}
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.api.setFaults(true)
}

// led returns the Secret with the route of a Cluster.
func (h *hammering) led(ctx context.Context, c *clusterv1.Cluster) (*corev1.Secret, error) {
	if h.second[c.Name] {
		return h.secret(ctx, c.Namespace, c.Name+"-proxied")
	}
	return h.stored(ctx, c)
}

// wantTruth wants each condition to say what client-go sees.
func (h *hammering) wantTruth() {
	h.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(h.t.Context(), hammerTruth)
	defer cancel()
	up := 0
	err := bed.Poll(ctx, "the conditions to be true", func(ctx context.Context) error {
		var wrong error
		up = 0
		for _, c := range h.clusters {
			s, err := h.led(ctx, c)
			if err != nil {
				return err
			}
			sees := h.doors.ask(ctx, s)
			got := &clusterv1.Cluster{}
			if err := h.admin.Get(ctx, client.ObjectKeyFromObject(c), got); err != nil {
				return err
			}
			var said metav1.Condition
			for _, condition := range got.Status.Conditions {
				if condition.Type == provider.ConditionRoute {
					said = condition
				}
			}
			if sees == nil {
				up++
			}
			if (said.Status == metav1.ConditionTrue) != (sees == nil) {
				wrong = errors.Join(wrong, fmt.Errorf("%s/%s says %s %s %q, client-go sees %v", c.Namespace, c.Name, said.Status, said.Reason, said.Message, sees))
			}
		}
		return wrong
	})
	if err != nil {
		h.t.Error(err)
	}
	h.t.Logf("the conditions are true after %v; %d of %d Clusters are reached", time.Since(began), up, len(h.clusters))
}

// wantRest wants no write at rest.
func (h *hammering) wantRest() {
	h.t.Helper()
	eventually(h.t, "the grace periods to end, which is written", func(ctx context.Context) error {
		for i, c := range h.clusters {
			if h.doors.isBlocked(i) {
				continue // its grace period goes on until it is reached
			}
			s, err := h.led(ctx, c)
			if err != nil || s.Annotations[provider.AnnotationPhase] == string(provider.StateGrace) {
				return errors.Join(err, fmt.Errorf("%s is in its own", c.Name))
			}
		}
		return nil
	})
	h.api.resetWrites()
	select {
	case <-time.After(hammerRest):
	case <-h.t.Context().Done():
	}
	if writes := h.api.writes(); len(writes) > 0 {
		h.t.Errorf("got writes at rest: %v", writes)
	}
	h.t.Logf("%d requests at rest", h.api.requests())
}

// wantRoutes wants no version without a route but those of the test's, and no direct
// request but by those.
func (h *hammering) wantRoutes() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	theirs := 0
	for version, what := range h.direct {
		if theirs++; !h.wrote[version] {
			h.t.Errorf("a provider wrote the version %s without a route: %s", version, what)
		}
	}
	requests := 0
	directly, routed := h.doors.requests()
	for version, n := range directly {
		requests += n
		if !h.wrote[version] {
			h.t.Errorf("%d requests went directly by the version %s, which is a provider's", n, version)
		}
	}
	h.t.Logf("%d versions of Secrets, of which Cluster API wrote %d without a route; client-go went directly %d times by those, %d times by the route",
		h.seen, theirs, requests, routed)
}
