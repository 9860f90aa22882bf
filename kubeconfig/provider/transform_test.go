package provider_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// twice transforms an object, and then the result: the result is the same.
func twice(t *testing.T, transform func(any) (any, error), object any) any {
	t.Helper()
	once, err := transform(object)
	if err != nil {
		t.Fatal(err)
	}
	again, err := transform(once)
	if diff := cmp.Diff(once, again); diff != "" || err != nil {
		t.Errorf("got %v, and another result the second time:\n%s", err, diff)
	}
	return once
}

func TestTransformCluster(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1beta2"} {
		object := map[string]any{
			"apiVersion": "cluster.x-k8s.io/" + version, "kind": "Cluster",
			"metadata": map[string]any{
				"namespace": "a", "name": "one", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-01-02T03:04:05Z",
				"annotations": map[string]any{
					provider.AnnotationMode: "own", "cluster.x-k8s.io/paused": "", "kubectl.kubernetes.io/last-applied-configuration": "{}",
				},
				"managedFields": []any{map[string]any{"manager": "m"}}, "labels": map[string]any{"l": "l"},
			},
			"spec": map[string]any{
				"paused": true, "topology": map[string]any{"class": "c"},
				"controlPlaneEndpoint": map[string]any{"host": "h", "port": int64(1)},
				"controlPlaneRef":      map[string]any{"name": "n"}, "infrastructureRef": map[string]any{"name": "i"},
			},
		}
		conditions := []any{map[string]any{"type": "Other"}, map[string]any{"type": provider.ConditionRoute, "status": "True"}}
		status := map[string]any{"phase": "Provisioned", "conditions": conditions}
		want := map[string]any{"conditions": conditions[1:]}
		if version == "v1beta1" {
			status = map[string]any{"conditions": []any{map[string]any{"type": provider.ConditionRoute}}, "v1beta2": map[string]any{"conditions": conditions}}
			want = map[string]any{"v1beta2": map[string]any{"conditions": conditions[1:]}}
		}
		object["status"] = status
		got := twice(t, provider.TransformCluster, &unstructured.Unstructured{Object: object}).(*unstructured.Unstructured).Object
		if diff := cmp.Diff(map[string]any{
			"apiVersion": "cluster.x-k8s.io/" + version, "kind": "Cluster",
			"metadata": map[string]any{
				"namespace": "a", "name": "one", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-01-02T03:04:05Z",
				"annotations": map[string]any{provider.AnnotationMode: "own", "cluster.x-k8s.io/paused": ""},
			},
			"spec": map[string]any{
				"paused": true, "controlPlaneEndpoint": map[string]any{"host": "h", "port": int64(1)},
				"controlPlaneRef": map[string]any{"name": "n"}, "infrastructureRef": map[string]any{"name": "i"},
			},
			"status": want,
		}, got); diff != "" {
			t.Errorf("%s: got (+), want (-):\n%s", version, diff)
		}
	}
}

// TestTransformSecret: what may be written back keeps all; what is not read, no
// data.
func TestTransformSecret(t *testing.T) {
	for _, tt := range []struct {
		name, manager string
		data          bool
	}{
		{"one-kubeconfig", "", true},
		{"one-ca", "", true},
		{"one-etcd", "", false},
		{"one-sa", "", false},
		{"one-proxied", "causeway", true},
		{"one-proxied", "", false},
	} {
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: tt.name, Labels: map[string]string{"l": "l"}, Annotations: map[string]string{"a": "a"},
				Finalizers: []string{"f"}, ManagedFields: []metav1.ManagedFieldsEntry{{}},
			},
			Data: map[string][]byte{"value": []byte("x")},
		}
		if tt.manager != "" {
			s.Annotations[provider.AnnotationManager] = tt.manager
		}
		want := s.DeepCopy()
		want.ManagedFields = nil
		if !tt.data {
			want.Data = nil
		}
		if diff := cmp.Diff(want, twice(t, provider.TransformSecret, s)); diff != "" {
			t.Errorf("%s by %q: got (+), want (-):\n%s", tt.name, tt.manager, diff)
		}
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "r", ManagedFields: []metav1.ManagedFieldsEntry{{}}}, Data: map[string][]byte{"password": nil}}
	want := s.DeepCopy()
	want.ManagedFields = nil
	if diff := cmp.Diff(want, twice(t, provider.TransformRouteSecret, s)); diff != "" {
		t.Errorf("route: got (+), want (-):\n%s", diff)
	}
}

func TestTransformOthers(t *testing.T) {
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
	if diff := cmp.Diff(want, twice(t, provider.TransformNamespace, ns)); diff != "" {
		t.Errorf("Namespace: got (+), want (-):\n%s", diff)
	}
	endpoints := []any{map[string]any{"host": "h", "port": int64(1)}}
	object := map[string]any{
		"apiVersion": "g/v1", "kind": "TestCluster", "metadata": map[string]any{"namespace": "a", "name": "one", "resourceVersion": "7"},
		"spec": map[string]any{"x": "y"}, "status": map[string]any{"ready": true, "apiEndpoints": endpoints},
	}
	got := twice(t, provider.TransformInfrastructure, &unstructured.Unstructured{Object: object}).(*unstructured.Unstructured).Object
	if diff := cmp.Diff(map[string]any{
		"apiVersion": "g/v1", "kind": "TestCluster", "metadata": map[string]any{"namespace": "a", "name": "one", "resourceVersion": "7"},
		"status": map[string]any{"apiEndpoints": endpoints},
	}, got); diff != "" {
		t.Errorf("infrastructure: got (+), want (-):\n%s", diff)
	}
	for name, transform := range map[string]func(any) (any, error){
		"Cluster": provider.TransformCluster, "Secret": provider.TransformSecret, "route": provider.TransformRouteSecret,
		"Namespace": provider.TransformNamespace, "infrastructure": provider.TransformInfrastructure,
	} {
		if got, err := transform(&metav1.Status{}); err != nil || got == nil {
			t.Errorf("%s: got %v, %v of another object, want it as it is", name, got, err)
		}
	}
}

// TestSpread is later than asked, by up to a quarter, and not always the same.
func TestSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		d := provider.Spread(time.Minute)
		if d < time.Minute || d > 75*time.Second {
			t.Errorf("got %v, want a minute to 75 s", d)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("got %d different ones of 100", len(seen))
	}
	if d := provider.Spread(1); d != 1 {
		t.Errorf("got %v, want 1ns", d)
	}
}
