package provider_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

func infrastructureObject(status object) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha2", "kind": "MyProviderCluster", "metadata": object{"name": "i1"}, "status": status,
	}}
}

// The example of the contract v1alpha2: its first endpoint is the Cluster's.
func TestFirstEndpoint(t *testing.T) {
	infra := infrastructureObject(object{"ready": true, "apiEndpoints": []any{
		object{"host": "example.com", "port": int64(3333)}, object{"host": "example.com", "port": int64(3334)},
	}})
	want := []kubeconfig.Endpoint{{Host: "example.com", Port: 3333}, {Host: "example.com", Port: 3334}}
	c, err := provider.ReadCluster(clusterObject("v1beta2", object{"controlPlaneEndpoint": object{"host": "", "port": int64(0)}}, nil), infra)
	if err != nil || c.Endpoint != want[0] || !cmp.Equal(c.MoreEndpoints, want[1:]) {
		t.Errorf("got %v, %v, %v", c.Endpoint, c.MoreEndpoints, err)
	}
	bad := clusterObject("v1beta2", object{"controlPlaneEndpoint": object{"host": "https://x", "port": int64(1)}}, nil)
	if c, err := provider.ReadCluster(bad, infra); err == nil || c.Endpoint.Host != "" {
		t.Errorf("got %v, %v, want an error of the Cluster's own endpoint", c.Endpoint, err)
	}
}

func TestInfrastructureStatus(t *testing.T) {
	condition := func(status, reason, message string) []any {
		return []any{object{"type": "Other", "status": "False", "reason": "X"}, object{"type": "Ready", "status": status, "reason": reason, "message": message}}
	}
	for _, test := range []struct {
		name   string
		status object
		want   string
	}{
		{"nothing", nil, "is not ready"},
		{"ready", object{"ready": true}, "is ready"},
		{"not ready", object{"ready": false}, "is not ready"},
		{"provisioned", object{"initialization": object{"provisioned": true}}, "is ready"},
		{"error", object{"ready": true, "errorReason": "CreateError", "errorMessage": "no quota"}, "has failed: CreateError: no quota"},
		{"failure", object{"failureReason": "CreateError", "failureMessage": "no\nquota"}, "has failed: CreateError: no quota"},
		{"message only", object{"errorMessage": "no quota"}, "has failed: no quota"},
		{"failure in v1beta2", object{"deprecated": object{"v1beta1": object{"failureMessage": "no quota"}}}, "has failed: no quota"},
		{"condition", object{"conditions": condition("False", "Waiting", "no VPC yet")}, "is not ready: Waiting: no VPC yet"},
		{"condition of v1beta1 with v1beta2's", object{"conditions": condition("False", "Old", "old"), "v1beta2": object{"conditions": condition("False", "New", "new")}}, "is not ready: New: new"},
		{"condition, ready", object{"conditions": condition("True", "Ready", "")}, "is ready"},
		{"other types", object{"ready": "yes", "errorMessage": int64(7), "conditions": "x"}, "is not ready"},
		{"long", object{"errorMessage": strings.Repeat("é", 1000)}, "has failed: " + strings.Repeat("é", 510) + "..."},
	} {
		t.Run(test.name, func(t *testing.T) {
			infra := infrastructureObject(test.status)
			kept := &unstructured.Unstructured{Object: object{"kind": infra.GetKind(), "metadata": infra.Object["metadata"]}}
			for _, path := range provider.InfrastructureFields() {
				if v, ok, _ := unstructured.NestedFieldNoCopy(infra.Object, path...); ok {
					_ = unstructured.SetNestedField(kept.Object, v, path...)
				}
			}
			for _, u := range []*unstructured.Unstructured{infra, kept} {
				c, err := provider.ReadCluster(clusterObject("v1beta2", object{}, nil), u)
				if want := "The infrastructure object MyProviderCluster i1 " + test.want; err != nil || c.Infrastructure.String() != want {
					t.Errorf("got %s, %v, want %s", c.Infrastructure, err, want)
				}
			}
		})
	}
}

// The condition tells of the infrastructure while the provider waits for it, and if it has failed.
func TestInfrastructureTold(t *testing.T) {
	says := func(w *world, want bool) {
		w.t.Helper()
		w.settle()
		if m := w.cluster.Condition.Message; strings.Count(m, "MyProviderCluster i1") != map[bool]int{true: 1}[want] {
			w.t.Errorf("got %q", m)
		}
	}
	inBubble(t, "waiting", func(t *testing.T, w *world) {
		endpoint := w.cluster.Endpoint
		w.controlPlane()
		w.cluster.Endpoint = kubeconfig.Endpoint{}
		w.cluster.Infrastructure = &provider.Infrastructure{Kind: "MyProviderCluster", Name: "i1", Reason: "Waiting", Message: "no VPC yet"}
		says(w, true)
		w.condition(metav1.ConditionFalse, provider.ReasonNoEndpoint)
		w.cluster.Infrastructure.Failed = true
		says(w, true)
		w.cluster.Endpoint = endpoint
		w.annotate("proxy-url", proxyA)
		says(w, false)
		w.condition(metav1.ConditionTrue, provider.ReasonReady)
		w.probe = down(proxyA)
		w.wait(20 * 60 * 1e9)
		says(w, true)
		w.condition(metav1.ConditionFalse, "TCPFailed")
		w.cluster.Infrastructure.Failed = false
		says(w, false)
	})
}
