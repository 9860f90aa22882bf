package controllers_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// drop writes a kubeconfig without the route, as Kamaji does.
func (b *bed) drop() {
	b.Set("secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{
			"namespace": "a", "name": "one-kubeconfig", "labels": map[string]any{kubeconfig.ClusterNameLabel: "one"},
			"managedFields": []any{map[string]any{"manager": "kamaji", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
				"fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:data": map[string]any{"f:value": map[string]any{}}}}},
		},
		"type": "Opaque", "data": map[string]any{"value": base64.StdEncoding.EncodeToString(writtenKubeconfig("t"))},
	})
}

// The memory is written first. If that fails, the kubeconfig stays; if the next write fails, the
// memory is ahead, and the route is put in from there. A rival who takes it away then is named, and
// not answered at once.
func TestRival(t *testing.T) {
	b := newBed(t)
	b.setPlan(provider.Plan)
	memory := apitest.Key{Resource: "secrets", Namespace: "a", Name: provider.RecordsName("one-kubeconfig")}
	var refuse atomic.Value
	refuse.Store("POST secrets")
	b.SetFault(func(r *http.Request) int {
		what := r.Method + " " + r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		if what == refuse.Load() {
			return http.StatusForbidden
		}
		return 0
	})
	routed := func() bool {
		value, _, _ := unstructured.NestedString(b.Get(kubeconfigOf("a", "one")).Object, "data", "value")
		text, _ := base64.StdEncoding.DecodeString(value)
		return strings.Contains(string(text), "http://p:1")
	}
	b.drop()
	annotations := route("p:1")
	annotations[provider.AnnotationProbe] = "off"
	b.Set("clusters", cluster("a", "one", annotations))
	b.run(t)
	b.Until(t, "the memory to be refused", func() bool { return b.reason("one") == provider.ReasonWriteFailed })
	if routed() || b.Get(memory) != nil || !strings.Contains(b.message("one"), "the Secret "+memory.Name+" can't be written") {
		t.Errorf("got a kubeconfig before its memory, or %q", b.message("one"))
	}
	refuse.Store("PUT one-kubeconfig")
	b.Until(t, "the memory", func() bool { return b.Get(memory) != nil && b.Tried("PUT", "one-kubeconfig") > 0 })
	b.Until(t, "the next write to be refused", func() bool { return strings.Contains(b.message("one"), "the Secret one-kubeconfig can't be written") })
	refuse.Store("")
	b.Until(t, "the route", routed)
	b.Until(t, "the condition", func() bool { return b.reason("one") == provider.ReasonNotProbed })
	writes := b.Wrote("PUT secrets")
	b.drop()
	b.Until(t, "the rival to be told of", func() bool { return b.reason("one") == provider.ReasonRivalWriter })
	if message := b.message("one"); !strings.HasPrefix(message, "kamaji writes the Secret one-kubeconfig") {
		t.Errorf("got %q, want the rival's name", message)
	}
	if routed() || b.Wrote("PUT secrets") != writes {
		t.Error("the rival was answered at once")
	}
}

// message returns that of the condition of a Cluster in the namespace a.
func (b *bed) message(name string) string {
	c, err := provider.ReadCluster(b.Get(apitest.Named("clusters", "a", name)), nil)
	if err != nil || c.Condition == nil {
		return ""
	}
	return c.Condition.Message
}
