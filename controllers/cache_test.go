package controllers_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// trimTwice trims an object, and then the result: the result is the same.
func trimTwice(t *testing.T, object any) any {
	t.Helper()
	once, err := controllers.TrimClusters(object)
	if err != nil {
		t.Fatal(err)
	}
	again, err := controllers.TrimClusters(once)
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
		got := trimTwice(t, &unstructured.Unstructured{Object: object}).(*unstructured.Unstructured).Object
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
		if got := trimTwice(t, object); got != object {
			t.Errorf("got %v, want the object as it is", got)
		}
	}
}
