package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watched is what a watch has shown of the Secrets and the ConfigMaps of a
// namespace.
type watched struct {
	mu      sync.Mutex // guards the fields below
	objects map[string]seenObject
	changed chan struct{} // closed with the next change
}

// seenObject is an object, and when it was seen.
type seenObject struct {
	text    string // of all its data
	version string
	owners  []metav1.OwnerReference
	at      time.Time
}

// watchedOf returns the kind and the name of an object, and what it is.
func watchedOf(object client.Object) (string, seenObject) {
	seen := seenObject{version: object.GetResourceVersion(), owners: object.GetOwnerReferences(), at: time.Now()}
	var text strings.Builder
	kind := "Secret"
	switch o := object.(type) {
	case *corev1.Secret:
		for _, key := range slices.Sorted(maps.Keys(o.Data)) {
			fmt.Fprintf(&text, "%s: %s\n", key, o.Data[key])
		}
	case *corev1.ConfigMap:
		kind = "ConfigMap"
		for _, key := range slices.Sorted(maps.Keys(o.Data)) {
			fmt.Fprintf(&text, "%s: %s\n", key, o.Data[key])
		}
	}
	seen.text = text.String()
	return kind + " " + object.GetName(), seen
}

// watchObjects watches until the test ends.
func (m *management) watchObjects(t *testing.T, namespace string) *watched {
	t.Helper()
	w := &watched{objects: map[string]seenObject{}, changed: make(chan struct{})}
	var watching sync.WaitGroup
	var all []watch.Interface
	t.Cleanup(func() {
		for _, events := range all {
			events.Stop()
		}
		watching.Wait()
	})
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}} {
		events, err := m.admin.Watch(t.Context(), list, client.InNamespace(namespace))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, events)
		watching.Go(func() {
			for e := range events.ResultChan() {
				w.take(e)
			}
		})
	}
	return w
}

func (w *watched) take(e watch.Event) {
	object, ok := e.Object.(client.Object)
	if !ok {
		return // a watch that ends
	}
	name, seen := watchedOf(object)
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Type == watch.Deleted {
		delete(w.objects, name)
	} else {
		w.objects[name] = seen
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// until waits until what was seen is so.
func (w *watched) until(t *testing.T, what string, holds func(map[string]seenObject) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		w.mu.Lock()
		changed := w.changed
		err := holds(w.objects)
		w.mu.Unlock()
		if err == nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v; last: %v", what, context.Cause(ctx), err)
		}
	}
}

// held asks the API server for what the watch is to show.
func (m *management) held(t *testing.T, namespace string) map[string]seenObject {
	t.Helper()
	var secrets corev1.SecretList
	var configMaps corev1.ConfigMapList
	for _, list := range []client.ObjectList{&secrets, &configMaps} {
		if err := m.admin.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
	}
	held := map[string]seenObject{}
	add := func(object client.Object) {
		name, seen := watchedOf(object)
		held[name] = seen
	}
	for i := range secrets.Items {
		add(&secrets.Items[i])
	}
	for i := range configMaps.Items {
		add(&configMaps.Items[i])
	}
	return held
}
