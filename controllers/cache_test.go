package controllers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// trimTwice trims an object, and then the result: the result is the same.
func trimTwice(t *testing.T, trim func(any) (any, error), object any) any {
	t.Helper()
	once, err := trim(object)
	if err != nil {
		t.Fatal(err)
	}
	again, err := trim(once)
	if diff := cmp.Diff(once, again); diff != "" || err != nil {
		t.Errorf("got %v, and another result the second time:\n%s", err, diff)
	}
	return once
}

func TestTrimClusters(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1beta2"} {
		spec := map[string]any{
			"paused":               true,
			"controlPlaneEndpoint": map[string]any{"host": "h", "port": int64(1)},
			"controlPlaneRef":      map[string]any{"name": "n"}, "infrastructureRef": map[string]any{"name": "i"},
			"clusterNetwork": map[string]any{"serviceDomain": "d"},
			"topology":       map[string]any{"classRef": map[string]any{"name": "c"}, "version": "v1.34.0"},
		}
		object := map[string]any{
			"apiVersion": "cluster.x-k8s.io/" + version, "kind": "Cluster",
			"metadata": map[string]any{
				"namespace": "a", "name": "one", "uid": "u", "resourceVersion": "7", "generation": int64(3), "deletionTimestamp": "2026-01-02T03:04:05Z",
				"annotations": map[string]any{
					provider.AnnotationMode: "own", "cluster.x-k8s.io/paused": "", "kubectl.kubernetes.io/last-applied-configuration": "{}",
				},
				"managedFields": []any{map[string]any{"manager": "m"}}, "labels": map[string]any{"l": "l", "cluster.x-k8s.io/watch-filter": "f"},
			},
			"spec": spec,
		}
		conditions := []any{map[string]any{"type": "Other"}, map[string]any{"type": provider.ConditionRoute, "status": "True"}}
		status := map[string]any{"phase": "Provisioned", "conditions": conditions}
		want := map[string]any{"conditions": conditions[1:]}
		if version == "v1beta1" {
			status = map[string]any{"conditions": []any{map[string]any{"type": provider.ConditionRoute}}, "v1beta2": map[string]any{"conditions": conditions}}
			want = map[string]any{"v1beta2": map[string]any{"conditions": conditions[1:]}}
		}
		object["status"] = status
		got := trimTwice(t, controllers.TrimClusters, &unstructured.Unstructured{Object: object}).(*unstructured.Unstructured).Object
		if diff := cmp.Diff(map[string]any{
			"apiVersion": "cluster.x-k8s.io/" + version, "kind": "Cluster",
			"metadata": map[string]any{
				"namespace": "a", "name": "one", "uid": "u", "resourceVersion": "7", "generation": int64(3), "deletionTimestamp": "2026-01-02T03:04:05Z",
				"annotations": map[string]any{provider.AnnotationMode: "own", "cluster.x-k8s.io/paused": ""},
				"labels":      map[string]any{"cluster.x-k8s.io/watch-filter": "f"},
			},
			"spec": map[string]any{
				"paused": true, "controlPlaneEndpoint": map[string]any{"host": "h", "port": int64(1)},
				"controlPlaneRef": map[string]any{"name": "n"}, "infrastructureRef": map[string]any{"name": "i"},
				"clusterNetwork": map[string]any{"serviceDomain": "d"},
				"topology":       map[string]any{"classRef": map[string]any{"name": "c"}},
			},
			"status": want,
		}, got); diff != "" {
			t.Errorf("%s: got (+), want (-):\n%s", version, diff)
		}
	}
}

// TestTrimOthers: an importer's own objects, typed or not, keep all fields.
func TestTrimOthers(t *testing.T) {
	for _, object := range []any{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{}}}},
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "g/v1", "kind": "Cluster", "metadata": map[string]any{"name": "one"}, "spec": map[string]any{"x": "y"}}},
		&metav1.Status{},
	} {
		if got := trimTwice(t, controllers.TrimClusters, object); got != object {
			t.Errorf("got %v, want the object as it is", got)
		}
	}
}

// TestTrimOwn is about the objects of the reconciler's own caches.
func TestTrimOwn(t *testing.T) {
	ns := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", UID: "u", ResourceVersion: "7", Labels: map[string]string{"l": "l"},
			Annotations: map[string]string{"other": "x", provider.AnnotationMode: "own"},
		},
		Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"f"}},
	}
	want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: "u", ResourceVersion: "7", Annotations: map[string]string{provider.AnnotationMode: "own"},
	}}
	if diff := cmp.Diff(want, trimTwice(t, controllers.TrimNamespace, ns)); diff != "" {
		t.Errorf("Namespace: got (+), want (-):\n%s", diff)
	}
	large := ns.DeepCopy()
	large.Annotations = map[string]string{"cluster.x-k8s.io/paused": strings.Repeat("x", 1<<14), provider.AnnotationNoProxy: strings.Repeat("x", 1<<14), "other": "x"}
	want.Annotations = map[string]string{"cluster.x-k8s.io/paused": "", provider.AnnotationMode: "annotations-of-more-than-16-KiB"}
	if diff := cmp.Diff(want, trimTwice(t, controllers.TrimNamespace, large)); diff != "" {
		t.Errorf("large annotations: got (+), want (-):\n%s", diff)
	}
	endpoints := []any{map[string]any{"host": "h", "port": int64(1)}}
	object := map[string]any{
		"apiVersion": "g/v1", "kind": "TestCluster", "metadata": map[string]any{"namespace": "a", "name": "one", "resourceVersion": "7"},
		"spec": map[string]any{"x": "y"}, "status": map[string]any{
			"ready": true, "apiEndpoints": endpoints, "network": "n", "conditions": []any{map[string]any{"type": "Ready"}},
		},
	}
	got := trimTwice(t, controllers.TrimInfrastructure, &unstructured.Unstructured{Object: object}).(*unstructured.Unstructured).Object
	if diff := cmp.Diff(map[string]any{
		"apiVersion": "g/v1", "kind": "TestCluster", "metadata": map[string]any{"namespace": "a", "name": "one", "resourceVersion": "7"},
		"status": map[string]any{"apiEndpoints": endpoints},
	}, got); diff != "" {
		t.Errorf("infrastructure: got (+), want (-):\n%s", diff)
	}
	long := map[string]any{"host": strings.Repeat("x", 1<<10), "port": int64(1), "more": "x"}
	many := append([]any{long, "h:1", map[string]any{"host": "h", "more": map[string]any{}}}, slices.Repeat([]any{map[string]any{}}, 1000)...)
	object["status"] = map[string]any{"apiEndpoints": many}
	got = trimTwice(t, controllers.TrimInfrastructure, &unstructured.Unstructured{Object: object}).(*unstructured.Unstructured).Object
	empty := map[string]any{"host": nil, "port": nil}
	want2 := append([]any{"an endpoint of more than 1 KiB", "h:1", map[string]any{"host": "h", "port": nil}}, slices.Repeat([]any{empty}, 62)...)
	if diff := cmp.Diff(map[string]any{"apiEndpoints": want2}, got["status"]); diff != "" {
		t.Errorf("many endpoints: got (+), want (-):\n%s", diff)
	}
}

// TestTrimLarge: a field that is too large is left out, and people are told.
func TestTrimLarge(t *testing.T) {
	route := map[string]any{"type": provider.ConditionRoute, "message": strings.Repeat("x", 10<<10)}
	object := map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
		"metadata": map[string]any{"namespace": "a", "name": "one", "annotations": map[string]any{"cluster.x-k8s.io/paused": "", provider.AnnotationMode: "own"}},
		"spec": map[string]any{
			"paused": true, "controlPlaneEndpoint": map[string]any{"host": "h", "port": int64(1)},
			"clusterNetwork": map[string]any{"services": slices.Repeat([]any{map[string]any{}}, 1000)},
		},
		"status": map[string]any{"conditions": append(slices.Repeat([]any{map[string]any{"type": "Other"}}, 1000), route)},
	}
	got := trimTwice(t, controllers.TrimClusters, &unstructured.Unstructured{Object: object}).(*unstructured.Unstructured).Object
	if diff := cmp.Diff(map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
		"metadata": map[string]any{"namespace": "a", "name": "one", "annotations": map[string]any{
			"cluster.x-k8s.io/paused": "", provider.AnnotationMode: "spec.clusterNetwork-of-more-than-16-KiB",
		}},
		"spec":   map[string]any{"paused": true, "controlPlaneEndpoint": map[string]any{"host": "h", "port": int64(1)}},
		"status": map[string]any{"conditions": []any{route}},
	}, got); diff != "" {
		t.Errorf("got (+), want (-):\n%s", diff)
	}
	route["message"] = strings.Repeat("x", 64<<10)
	got = trimTwice(t, controllers.TrimClusters, &unstructured.Unstructured{Object: object}).(*unstructured.Unstructured).Object
	if got["status"] != nil {
		t.Errorf("got %v of a condition of 64 KiB, want none", got["status"])
	}
}

// TestSpreadTime is later than asked, by up to a quarter, and not always the same.
func TestSpreadTime(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		d := controllers.SpreadTime(time.Minute)
		if d < time.Minute || d > 75*time.Second {
			t.Errorf("got %v, want a minute to 75 s", d)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("got %d different ones of 100", len(seen))
	}
	if d := controllers.SpreadTime(1); d != 1 {
		t.Errorf("got %v, want 1ns", d)
	}
}
