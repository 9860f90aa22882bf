package controllers_test

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

func namespace(name string, labels map[string]any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": labels}}
}

// The Secret of pods is in the selected namespaces, follows the installation's,
// and leaves others' alone.
func TestProxyEnvSecrets(t *testing.T) {
	b := newProxyBed(t)
	b.install(proxy)
	on := map[string]any{"proxy": "on"}
	b.reconciler.EnvSecrets = &controllers.EnvSecrets{Name: "proxy", Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"proxy": "on"}}}
	for _, name := range []string{"a", "theirs", "system"} { // in system it is the installation's own
		b.Set("namespaces", namespace(name, on))
	}
	b.Set("namespaces", namespace("off", nil))
	b.Set("secrets", secretWith("theirs", "proxy", nil, "HTTP_PROXY", "theirs"))
	b.run()
	a := apitest.Named("secrets", "a", "proxy")
	b.Until(t, "the Secret, and the Event", func() bool { return b.value(a, "HTTP_PROXY") == proxy && b.Wrote("POST events") == 1 })
	b.Until(t, "the writes told", func() bool { return len(b.since(0)) == 1 })
	if n := b.planned("/system"); n != 0 {
		t.Errorf("got %d plans for the installation's own Secret, want none", n)
	}
	if got := b.value(a, "HTTPS_PROXY") + b.value(a, "NO_PROXY"); got != proxy+people || b.Get(a).GetLabels()[propagate.LabelManagedBy] != "causeway" {
		t.Errorf("got %q, want all three keys, and the label", got)
	}
	b.Change(a, func(u *unstructured.Unstructured) {
		unstructured.SetNestedField(u.Object, "eA==", "data", "x")
		unstructured.RemoveNestedField(u.Object, "data", "NO_PROXY")
	})
	b.Until(t, "our key", func() bool { return b.value(a, "NO_PROXY") == people })
	b.Set("secrets", secretWith("system", "proxy", nil, "HTTPS_PROXY", other))
	b.Until(t, "the change", func() bool { return b.value(a, "HTTPS_PROXY") == other })
	if got := b.value(a, "HTTP_PROXY") + b.value(a, "NO_PROXY") + b.value(a, "x"); got != "x" {
		t.Errorf("got %q, want what is not set gone, and the other's key", got)
	}
	b.Set("namespaces", namespace("late", on))
	b.Until(t, "the late one", func() bool { return b.value(apitest.Named("secrets", "late", "proxy"), "HTTPS_PROXY") == other })
	b.Remove(a)
	b.Until(t, "it again", func() bool { return b.value(a, "HTTPS_PROXY") == other })
	plans := b.planned("/a")
	b.Remove(installed)
	b.Until(t, "a plan without the installation's", func() bool { return b.planned("/a") > plans })
	b.Until(t, "the installation's Event", func() bool { return b.Wrote("POST events") >= 2 })
	want := map[string]int{"POST secrets": 3, "PUT secrets": 2}
	got := b.AllWrites()
	delete(got, "POST events")
	if !maps.Equal(got, want) || b.value(apitest.Named("secrets", "theirs", "proxy"), "HTTP_PROXY") != "theirs" ||
		b.Get(apitest.Named("secrets", "off", "proxy")) != nil || !strings.Contains(b.value(a, "HTTPS_PROXY"), other) {
		t.Errorf("got %v, want %v, and theirs as it was", got, want)
	}
}
