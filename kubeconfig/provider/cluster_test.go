package provider_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

type object = map[string]any

func clusterObject(version string, spec, status object) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{
		"apiVersion": "cluster.x-k8s.io/" + version, "kind": "Cluster",
		"metadata": object{"name": "c1", "namespace": "clusters", "uid": "uid-1"}, "spec": spec, "status": status,
	}}
}

// A host is written into URLs, units and manifests.
func TestReadClusterHost(t *testing.T) {
	for host, valid := range map[string]bool{
		"api.test": true, "API.a_b.test.": true, "xn--bcher-kva.test": true, "192.0.2.1": true, "2001:db8::1": true,
		"X.gr7.eu-west-1.eks.amazonaws.com": true,
		"a\rExecStartPre=/bin/sh":           false, "a\nb": false, "a\x00b": false, "a\u0085b": false, "a\u2028b": false, "a\u202eb": false, "a\x85b": false,
		`a"b`: false, "a'b": false, `a\b`: false, "${X}": false, "$(X)": false, "a%n": false, "a;b": false, "a,b": false, "a=b": false, "*": false, "-a": false,
		"a\u200bb": false, "a\u00a0b": false, "192.0.2.1.": false, "fe80::1%eth0": false, "[2001:db8::1]": false,
	} {
		c, err := provider.ReadCluster(clusterObject("v1beta2", object{"controlPlaneEndpoint": object{"host": host, "port": int64(6443)}}, nil), nil)
		if (err == nil) != valid || valid != (c.Endpoint.Host == host) {
			t.Errorf("%q: got %q, %v; want valid %t", host, c.Endpoint.Host, err, valid)
		}
		if err != nil && (!strings.Contains(err.Error(), "spec.controlPlaneEndpoint: the host ") || strings.Contains(err.Error(), host) && len(host) > 2) {
			t.Errorf("%q: got %v, want the field without the value", host, err)
		}
	}
}

func TestReadCluster(t *testing.T) {
	ready := []any{
		object{"type": "Available", "status": "True"},
		object{"type": "RouteReady", "status": "True", "reason": "Ready", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z"},
	}
	endpoint := object{"host": "api.test", "port": int64(6443)}
	more := func(list ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: object{"status": object{"apiEndpoints": list}}}
	}
	manyEndpoints := make([]any, 10000)
	for n := range manyEndpoints {
		manyEndpoints[n] = fmt.Sprintf("10.0.%d.%d:6443", n/250, n%250)
	}
	tests := []struct {
		name           string
		cluster, infra *unstructured.Unstructured
		change         func(*provider.Cluster)
		says           string // of the error
	}{
		{name: "new", cluster: clusterObject("v1beta2", object{}, nil), change: func(*provider.Cluster) {}},
		{name: "no endpoint yet", cluster: clusterObject("v1beta1", object{"controlPlaneEndpoint": object{"host": "", "port": int64(0)}}, nil),
			change: func(c *provider.Cluster) { c.APIVersion = "cluster.x-k8s.io/v1beta1" }},
		{name: "all", cluster: clusterObject("v1beta2", object{"controlPlaneEndpoint": endpoint, "paused": true, "controlPlaneRef": object{"name": "x"}}, object{"conditions": ready}),
			infra: more(object{"host": "api.test", "port": int64(6443)}, object{"host": "2001:db8::1", "port": float64(6443)}, "b.test:443", "[2001:db8::2]:443", "b.test:443"),
			change: func(c *provider.Cluster) {
				c.Endpoint = kubeconfig.Endpoint{Host: "api.test", Port: 6443}
				c.Paused, c.HasControlPlane = true, true
				c.MoreEndpoints = []kubeconfig.Endpoint{{Host: "2001:db8::1", Port: 6443}, {Host: "b.test", Port: 443}, {Host: "2001:db8::2", Port: 443}}
				c.Condition = &metav1.Condition{Reason: "Ready"}
				c.Infrastructure = " "
			}},
		{name: "v1beta1's conditions", cluster: clusterObject("v1beta1", object{"controlPlaneEndpoint": endpoint}, object{"conditions": []any{}, "v1beta2": object{"conditions": ready}}),
			change: func(c *provider.Cluster) {
				c.Endpoint = kubeconfig.Endpoint{Host: "api.test", Port: 6443}
				c.APIVersion = "cluster.x-k8s.io/v1beta1"
				c.Condition = &metav1.Condition{Reason: "Ready"}
			}},
		{name: "a URL in the host's place", cluster: clusterObject("v1beta2", object{"controlPlaneEndpoint": object{"host": "https://api.test", "port": int64(6443)}}, nil),
			infra: more("https://api.test:6443/", "HTTPS://b.test", object{"host": "https://[2001:db8::1]:6443"}, object{"host": "Https://192.0.2.1/", "port": float64(443)}),
			change: func(c *provider.Cluster) {
				c.Endpoint = kubeconfig.Endpoint{Host: "api.test", Port: 6443}
				c.MoreEndpoints = []kubeconfig.Endpoint{{Host: "b.test", Port: 443}, {Host: "2001:db8::1", Port: 6443}, {Host: "192.0.2.1", Port: 443}}
				c.Infrastructure = " "
			}},
		{name: "a URL with another port", cluster: clusterObject("v1beta2", object{"controlPlaneEndpoint": object{"host": "https://api.test:6443", "port": int64(443)}}, nil), says: "spec.controlPlaneEndpoint: the host names another port than port does"},
		{name: "a path", cluster: clusterObject("v1beta2", object{"controlPlaneEndpoint": object{"host": "https://rancher.test/k8s/clusters/c-m-1", "port": int64(443)}}, nil), says: "spec.controlPlaneEndpoint: has a path, which an endpoint can't have"},
		{name: "without TLS", cluster: clusterObject("v1beta2", object{"controlPlaneEndpoint": object{"host": "http://api.test", "port": int64(80)}}, nil), says: "spec.controlPlaneEndpoint: has the scheme http: want https"},
		{name: "user info", cluster: clusterObject("v1beta2", object{"controlPlaneEndpoint": object{"host": "https://u:" + canary + "@api.test", "port": int64(80)}}, nil), says: "user info"},
		{name: "a port twice", cluster: clusterObject("v1beta2", object{"controlPlaneEndpoint": object{"host": "api.test:6443", "port": int64(6443)}}, nil), says: "holds a port"},
		{name: "no port", cluster: clusterObject("v1beta2", object{"controlPlaneEndpoint": object{"host": "api.test"}}, nil), says: "port is 0"},
		{name: "a large port", cluster: clusterObject("v1beta2", object{"controlPlaneEndpoint": object{"host": "api.test", "port": int64(1<<32 + 443)}}, nil), says: "port"},
		{name: "an infrastructure's scheme", cluster: clusterObject("v1beta2", object{"controlPlaneEndpoint": endpoint}, nil), infra: more("ftp://x:1", object{"host": "http://x", "port": int64(1)}),
			says: "apiEndpoints[0]"},
		{name: "many of an infrastructure", cluster: clusterObject("v1beta2", object{"controlPlaneEndpoint": endpoint}, nil), infra: more(manyEndpoints...),
			says: "it has more than 64, and only the first are used"},
		{name: "another kind", cluster: &unstructured.Unstructured{Object: object{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine"}}, says: "want a Cluster"},
		{name: "nil", says: "want a Cluster"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := provider.ReadCluster(test.cluster, test.infra)
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), canary) || len(got.MoreEndpoints) > 64 {
					t.Fatalf("got %v and %d endpoints, want %q", err, len(got.MoreEndpoints), test.says)
				}
				if action, _ := provider.Plan(got, provider.Secrets{}, provider.Config{Now: time.Now()}); strings.Contains(err.Error(), "spec.controlPlaneEndpoint") && !strings.Contains(action.Condition.Message, test.says) {
					t.Errorf("got the condition %q, want it to say %q", action.Condition.Message, test.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := provider.Cluster{Namespace: "clusters", Name: "c1", UID: "uid-1", APIVersion: "cluster.x-k8s.io/v1beta2"}
			test.change(&want)
			if (got.Condition == nil) != (want.Condition == nil) || got.Condition != nil && got.Condition.Reason != want.Condition.Reason {
				t.Errorf("got condition %v", got.Condition)
			}
			want.Condition = got.Condition
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadClusterPausedAndDeleting(t *testing.T) {
	c := clusterObject("v1beta2", object{}, nil)
	c.SetAnnotations(map[string]string{"cluster.x-k8s.io/paused": ""})
	now := metav1.Now()
	c.SetDeletionTimestamp(&now)
	got, err := provider.ReadCluster(c, nil)
	if err != nil || !got.Paused || !got.Deleting {
		t.Errorf("got %+v, %v", got, err)
	}
}

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
	bad := clusterObject("v1beta2", object{"controlPlaneEndpoint": object{"host": "http://x", "port": int64(1)}}, nil)
	if c, err := provider.ReadCluster(bad, infra); err == nil || c.Endpoint.Host != "" {
		t.Errorf("got %v, %v, want an error of the Cluster's own endpoint", c.Endpoint, err)
	}
}
