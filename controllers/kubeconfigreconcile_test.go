package controllers_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

func kubeconfigOf(namespace, name string) apitest.Key {
	return apitest.Named("secrets", namespace, name+"-kubeconfig")
}

// value returns a key of a Secret.
func (b *bed) value(key apitest.Key, name string) string {
	text, _, _ := unstructured.NestedString(b.Get(key).Object, "data", name)
	value, _ := base64.StdEncoding.DecodeString(text)
	return string(value)
}

// has says whether there is the Secret with the value.
func (b *bed) has(key apitest.Key, value string) func() bool {
	return func() bool { return b.Get(key) != nil && b.value(key, "value") == value }
}

func TestRun(t *testing.T) {
	b := newBed(t)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	b.Set("clusters", cluster("a", "two", route("p2:1")))
	b.run(t)
	b.Until(t, "both", func() bool { return b.Wrote("PATCH clusters") == 2 && b.Wrote("POST events") == 2 })
	for name, want := range map[string]string{"one": "http://p1:1", "two": "http://p2:1"} {
		if got := b.value(kubeconfigOf("a", name), "value"); got != want {
			t.Errorf("got %q in the Secret of %s, want %q", got, name, want)
		}
	}
	want := map[string]int{"POST secrets": 2, "POST events": 2, "PATCH clusters": 2}
	if got := b.AllWrites(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestChanges: each of what a plan depends on leads to a new one, and what it
// doesn't leads to none that writes.
func TestChanges(t *testing.T) {
	t.Parallel()
	one := apitest.Named("clusters", "a", "one")
	tests := []struct {
		name   string
		change func(*bed)
		want   string
	}{
		{"annotation of the Cluster", func(b *bed) {
			b.Change(one, func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationProxyURL, "http://p2:1") })
		}, "http://p2:1"},
		{"annotation of the Namespace", func(b *bed) {
			b.Change(apitest.Named("namespaces", "", "a"), func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationProxyURL, "http://p3:1") })
			b.Change(one, func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
		}, "http://p3:1"},
		{"Namespace alone", func(b *bed) {
			b.Change(apitest.Named("namespaces", "", "a"), func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationRouteSecret, "second") })
		}, "http://p1:1"},
		{"Secret rewritten by another", func(b *bed) {
			b.Change(kubeconfigOf("a", "one"), func(u *unstructured.Unstructured) {
				unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString([]byte("other")), "data", "value")
			})
		}, "http://p1:1"},
		{"Secret deleted by another", func(b *bed) { b.Remove(kubeconfigOf("a", "one")) }, "http://p1:1"},
		{"route Secret named", func(b *bed) {
			b.Change(one, func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationRouteSecret, "first") })
		}, "http://p1:1/password1"},
		{"route Secret changed", func(b *bed) {
			b.Change(one, func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationRouteSecret, "first") })
			b.Until(b.t, "the first password", b.has(kubeconfigOf("a", "one"), "http://p1:1/password1"))
			b.Set("secrets", routeSecret("first", "password2"))
		}, "http://p1:1/password2"},
		{"route Secret deleted", func(b *bed) {
			b.Change(one, func(u *unstructured.Unstructured) { annotate(u, provider.AnnotationRouteSecret, "first") })
			b.Until(b.t, "the first password", b.has(kubeconfigOf("a", "one"), "http://p1:1/password1"))
			b.Remove(apitest.Named("secrets", "a", "first"))
		}, "http://p1:1"},
		{"infrastructure named, and its endpoints changed", func(b *bed) {
			b.Change(one, func(u *unstructured.Unstructured) {
				unstructured.SetNestedMap(u.Object, map[string]any{
					"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "TestCluster", "name": "one",
				}, "spec", "infrastructureRef")
			})
			b.Until(b.t, "an endpoint", b.has(kubeconfigOf("a", "one"), "http://p1:1,192.0.2.2:6443"))
			b.Set("testclusters", testCluster("192.0.2.3"))
		}, "http://p1:1,192.0.2.3:6443"},
		{"Cluster made anew", func(b *bed) {
			b.Remove(one)
			b.Remove(kubeconfigOf("a", "one"))
			b.Set("clusters", cluster("a", "one", route("p9:1")))
		}, "http://p9:1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			b.Set("secrets", routeSecret("first", "password1"))
			b.Set("testclusters", testCluster("192.0.2.2"))
			b.Set("clusters", cluster("a", "one", route("p1:1")))
			b.run(t)
			b.Until(t, "the first Secret", func() bool {
				return b.has(kubeconfigOf("a", "one"), "http://p1:1")() && b.Wrote("PATCH clusters") == 1
			})
			plans := b.counted(b.plans, "a/one")
			tt.change(b)
			b.Until(t, "the change", func() bool {
				return b.has(kubeconfigOf("a", "one"), tt.want)() && b.counted(b.plans, "a/one") > plans
			})
		})
	}
}

// A Secret that is there and that no cache has, since it lacks a label, is not told of as missing.
func TestUnlabelledTold(t *testing.T) {
	const own = " is there, and lacks the label cluster.x-k8s.io/cluster-name=one: set it"
	secret := func(name, key string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "a", "name": name},
			"data": map[string]any{key: base64.StdEncoding.EncodeToString([]byte("x"))}}
	}
	for _, test := range []struct {
		name        string
		annotations map[string]any
		tunnel      bool
		secret      map[string]any
		label       string
		want, then  string
	}{
		{"the CA", map[string]any{provider.AnnotationMode: "own"}, false, secret("one-ca", "tls.crt"), kubeconfig.ClusterNameLabel, "the Secret a/one-ca" + own, "lacks tls.crt or tls.key"},
		{"the kubeconfig", route("p1:1"), false, secret("one-kubeconfig", "value"), kubeconfig.ClusterNameLabel, "the Secret a/one-kubeconfig" + own, "one-kubeconfig: the kubeconfig"},
		{"the Secret of a route", map[string]any{provider.AnnotationRouteSecret: "first"}, false, secret("first", provider.KeyPassword), provider.LabelRoute,
			"the Secret a/first is there, and lacks the label " + provider.LabelRoute + ": set it", "a/first has no key proxy-url or gateway"},
		{"the Secret of a tunnel", nil, true, secret("one-tunnel-route", provider.KeyPassword), provider.LabelRoute,
			"the Secret a/one-tunnel-route is there, and lacks the label " + provider.LabelRoute + ": set it", "a/one-tunnel-route has no key proxy-url or gateway"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := plannedBed(t)
			object := cluster("a", "one", test.annotations)
			if test.tunnel {
				object["metadata"].(map[string]any)["labels"] = map[string]any{provider.LabelTunnel: "true"}
			}
			b.Set("secrets", test.secret)
			b.Set("clusters", object)
			says := func(text string) func() bool {
				return func() bool {
					return strings.Contains(fmt.Sprint(b.Get(apitest.Named("clusters", "a", "one")).Object["status"]), text)
				}
			}
			b.run(t)
			b.Until(t, test.want, says(test.want))
			b.Change(apitest.Named("secrets", "a", test.secret["metadata"].(map[string]any)["name"].(string)), func(u *unstructured.Unstructured) {
				u.SetLabels(map[string]string{test.label: "one"})
			})
			b.Until(t, test.then, says(test.then))
		})
	}
}

func annotate(u *unstructured.Unstructured, name, value string) {
	m := u.GetAnnotations()
	if m == nil {
		m = map[string]string{}
	}
	m[name] = value
	u.SetAnnotations(m)
}

func routeSecret(name, password string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": "a", "name": name, "labels": map[string]any{provider.LabelRoute: ""}},
		"data":     map[string]any{provider.KeyPassword: base64.StdEncoding.EncodeToString([]byte(password))},
	}
}

func testCluster(host string) map[string]any {
	return map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "TestCluster",
		"metadata": map[string]any{"namespace": "a", "name": "one"},
		"status": map[string]any{"apiEndpoints": []any{
			map[string]any{"host": host, "port": int64(6443)}, map[string]any{"host": "192.0.2.1", "port": int64(6443)},
		}},
	}
}

// TestSettled: once all is as it should be, neither changes of what is not read
// nor a second manager write anything.
func TestSettled(t *testing.T) {
	b := newBed(t)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	stop := b.run(t)
	b.Until(t, "the first pass", func() bool { return b.Wrote("PATCH clusters") == 1 && b.Wrote("POST events") == 1 })
	before := b.AllWrites()
	for i := range 3 {
		plans := b.counted(b.plans, "a/one")
		b.Change(kubeconfigOf("a", "one"), func(u *unstructured.Unstructured) { annotate(u, "foreign", fmt.Sprint(i)) })
		b.Until(t, "a plan", func() bool { return b.counted(b.plans, "a/one") > plans })
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	probes, plans := b.counted(b.probes, "a/one"), b.counted(b.plans, "a/one")
	stop = b.run(t)
	b.Until(t, "the second's plans and probe", func() bool {
		return b.counted(b.plans, "a/one") >= plans+2 && b.counted(b.probes, "a/one") > probes
	})
	if err := stop(); err != nil { // and with it all that goes on
		t.Fatal(err)
	}
	if got := b.AllWrites(); !maps.Equal(got, before) {
		t.Errorf("got %v, want %v", got, before)
	}
	if got := b.counted(b.probes, "a/one"); got != probes+1 {
		t.Errorf("got %d probes of a second manager, want 1", got-probes)
	}
}

// TestV1beta1 has its conditions elsewhere.
func TestV1beta1(t *testing.T) {
	b := newBed(t)
	b.Serve("cluster.x-k8s.io", &apitest.Group{Version: "v1beta1", Kinds: map[string]string{"clusters": "Cluster"}})
	old := cluster("a", "one", route("p1:1"))
	old["apiVersion"] = "cluster.x-k8s.io/v1beta1"
	b.Set("clusters", old)
	b.run(t)
	b.Until(t, "the condition", func() bool { return b.Wrote("PATCH clusters") == 1 })
	u := b.Get(apitest.Named("clusters", "a", "one"))
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "v1beta2", "conditions")
	if len(list) != 1 || list[0].(map[string]any)["type"] != provider.ConditionRoute {
		t.Errorf("got %v, want the condition", list)
	}
}

// TestCondition is written when it changes, keeps its time while the status
// does, and leaves others' alone.
func TestCondition(t *testing.T) {
	b := newBed(t)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	one := apitest.Named("clusters", "a", "one")
	b.Change(one, func(u *unstructured.Unstructured) {
		apitest.MergeCondition(u, []string{"status", "conditions"}, map[string]any{"type": "Other", "status": "True"})
		apitest.MergeCondition(u, []string{"status", "conditions"}, map[string]any{
			"type": provider.ConditionRoute, "status": "True", "reason": "Old", "message": "old", "lastTransitionTime": "2020-01-02T03:04:05Z",
		})
	})
	b.run(t)
	b.Until(t, "the condition", func() bool { return b.Wrote("PATCH clusters") == 1 })
	list, _, _ := unstructured.NestedSlice(b.Get(one).Object, "status", "conditions")
	if len(list) != 2 || list[0].(map[string]any)["type"] != "Other" {
		t.Fatalf("got %v, want the other one too", list)
	}
	ours := list[1].(map[string]any)
	if ours["reason"] != "Passed" || ours["lastTransitionTime"] != "2020-01-02T03:04:05Z" {
		t.Errorf("got %v, want the new reason and the old time", ours)
	}
}

// TestNamespaces: Clusters elsewhere are left alone, and the installation's
// route Secret may be elsewhere.
func TestNamespaces(t *testing.T) {
	b := newBed(t)
	b.r.Namespaces = []string{"b", "c", "b"}
	b.setNamespaces("b", "c")
	b.r.Config.Defaults = provider.Settings{ProxyURL: "http://p0:1", RouteSecret: "a/first"}
	b.Set("secrets", routeSecret("first", "password1"))
	for _, ns := range []string{"a", "b", "c"} {
		b.Set("clusters", cluster(ns, "one", nil))
	}
	b.run(t)
	b.Until(t, "two Clusters", func() bool { return b.Wrote("PATCH clusters") == 2 })
	for _, ns := range []string{"b", "c"} {
		if got := b.value(kubeconfigOf(ns, "one"), "value"); got != "http://p0:1/password1" {
			t.Errorf("got %q in %s, want the default", got, ns)
		}
	}
	if b.counted(b.plans, "a/one") != 0 {
		t.Error("got a plan for a Cluster in another namespace")
	}
}

// TestNamespacesAnnotations count where Namespaces are named, too.
func TestNamespacesAnnotations(t *testing.T) {
	b := newBed(t)
	b.r.Namespaces = []string{"b", "c"}
	b.setNamespaces("c")
	b.Set("namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "b", "annotations": route("p5:1")}})
	b.Set("clusters", cluster("b", "one", nil))
	b.run(t)
	b.Until(t, "the Namespace's route", b.has(kubeconfigOf("b", "one"), "http://p5:1"))
}

func (b *bed) setNamespaces(names ...string) {
	for _, name := range names {
		b.Set("namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	}
}

// TestNamespaceFirst: a Cluster is not planned before its Namespace is known, which may
// name the route.
func TestNamespaceFirst(t *testing.T) {
	b := newBed(t)
	b.Remove(apitest.Named("namespaces", "", "a"))
	b.setNamespaces("b")
	b.Set("clusters", cluster("a", "one", nil))
	b.run(t)
	b.Set("clusters", cluster("b", "one", route("p1:1")))
	b.Until(t, "a Cluster of another Namespace", b.has(kubeconfigOf("b", "one"), "http://p1:1"))
	if got := b.counted(b.plans, "a/one"); got != 0 {
		t.Errorf("got %d plans without the Namespace, want none", got)
	}
	b.Set("namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "a", "annotations": route("p2:1")}})
	b.Until(t, "the Namespace's route", b.has(kubeconfigOf("a", "one"), "http://p2:1"))
	if got := b.Wrote("POST secrets") + b.Wrote("PUT secrets"); got != 2 {
		t.Errorf("got %d writes of Secrets, want 2", got)
	}
}

// TestWatchFilter wants no write for a Cluster without the value of the label.
func TestWatchFilter(t *testing.T) {
	b := newBed(t)
	b.r.WatchFilter = "ours"
	b.Set("clusters", cluster("a", "other", route("p1:1")))
	ours := cluster("a", "one", route("p1:1"))
	ours["metadata"].(map[string]any)["labels"] = map[string]any{"cluster.x-k8s.io/watch-filter": "ours"}
	b.Set("clusters", ours)
	b.run(t)
	b.Until(t, "the Secret", func() bool { return b.Wrote("PATCH clusters") == 1 })
	if got := b.counted(b.plans, "a/other"); got != 0 {
		t.Errorf("got %d plans of another's Cluster, want none", got)
	}
}
