package provider_test

import (
	"encoding/base64"
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func kubeconfigOf(namespace, name string) objectKey {
	return objectKey{"secrets", namespace, name + "-kubeconfig"}
}

// value returns a key of a Secret.
func (b *bed) value(key objectKey, name string) string {
	text, _, _ := unstructured.NestedString(b.get(key).Object, "data", name)
	value, _ := base64.StdEncoding.DecodeString(text)
	return string(value)
}

// has says whether there is the Secret with the value.
func (b *bed) has(key objectKey, value string) func() bool {
	return func() bool { return b.get(key) != nil && b.value(key, "value") == value }
}

func TestRun(t *testing.T) {
	b := newBed(t)
	b.set("namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "a"}})
	b.set("clusters", cluster("a", "one", route("p1:1")))
	b.set("clusters", cluster("a", "two", route("p2:1")))
	b.run(t)
	b.until(t, "both", func() bool { return b.wrote("PATCH clusters") == 2 })
	for name, want := range map[string]string{"one": "http://p1:1", "two": "http://p2:1"} {
		if got := b.value(kubeconfigOf("a", name), "value"); got != want {
			t.Errorf("got %q in the Secret of %s, want %q", got, name, want)
		}
	}
	want := map[string]int{"POST secrets": 2, "POST events": 2, "PATCH clusters": 2}
	if got := b.allWrites(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
