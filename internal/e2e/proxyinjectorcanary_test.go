package e2e

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/proxyconfig"
)

// canary looks for the password in all that the API server holds and in what the
// injector has written: it is in the Secrets, and in the pod that was given it in
// plain.
func (in *injection) canary(t *testing.T) {
	// The injector is down, and pods of its namespace are refused.
	in.deliver(t, "default")
	want := map[string]bool{}
	for _, what := range []string{"Secret/" + in.pod("proxy"), "Pod/" + in.pod("plain"),
		"Secret/" + in.namespace + "-cluster-values", "Secret/" + in.namespace + "-systemd-proxy"} {
		want[what] = true
	}
	got, scanned := map[string]bool{}, map[string]int{}
	for _, namespace := range []string{in.namespace, "default", "kube-system"} {
		for _, object := range listed(t, in.bed.Kube.Config(), namespace) {
			scanned[object.GetKind()]++
			text, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if leaksPassword(string(text), injectPassword) {
				got[object.GetKind()+"/"+object.GetName()] = true
			}
		}
	}
	// Another run's are in the default namespace, too.
	maps.DeleteFunc(got, func(name string, _ bool) bool {
		return !strings.Contains(name, in.namespace) && strings.Contains(name, "/inject-")
	})
	if !maps.Equal(got, want) {
		t.Errorf("got the password in %q, want it in %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	if scanned["Pod"] < 8 || scanned["Secret"] < 3 || scanned["ConfigMap"] < 1 {
		t.Errorf("got %v objects, too few to say anything", scanned)
	}
	for what, text := range map[string]string{"output": in.program.Stdout(), "log": in.program.Stderr()} {
		if leaksPassword(text, injectPassword) {
			t.Errorf("got the password in the injector's %s:\n%s", what, text)
		}
	}
	if !strings.Contains(in.program.Stderr(), in.pod("bare")) {
		t.Error("the injector has logged nothing of the pods")
	}
	t.Logf("scanned %v", scanned)
}

// leaksPassword looks for it as it is and in base64, where what is before it
// decides how it looks.
func leaksPassword(text, password string) bool {
	for i := range 3 {
		if strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(password[i:i+9]))) {
			return true
		}
	}
	return strings.Contains(text, password)
}

// deliver makes what the package renders for an API server: as pods refer to it,
// as cluster apps read it, and a pod that has it in plain.
func (in *injection) deliver(t *testing.T, namespace string) {
	t.Helper()
	o, err := proxyconfig.ClusterValues{Name: in.namespace, Namespace: namespace, Config: injectConfig}.Build()
	if err != nil {
		t.Fatal(err)
	}
	proxy := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: in.pod("proxy")}, Data: injectConfig.EnvSecretData()}
	core := in.clients.CoreV1()
	for _, s := range []*corev1.Secret{o.Secret, o.SystemdProxy, proxy} {
		if _, err := core.Secrets(namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := core.ConfigMaps(namespace).Create(t.Context(), o.ConfigMap, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string][]corev1.EnvVar{"plain": injectConfig.EnvVars(), "referring": injectConfig.EnvVarsFrom(proxy.Name, true)} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: in.pod(name)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none", Env: env}}}}
		if _, err := core.Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// listed returns all that is in a namespace of an API server, of every kind that
// can be listed; without a namespace, all that the API server holds.
func listed(t *testing.T, config *rest.Config, namespace string) []unstructured.Unstructured {
	t.Helper()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{} // all kinds: older ones too
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu      sync.Mutex // guards all
		all     []unstructured.Unstructured
		listing sync.WaitGroup
	)
	for _, r := range listable(t, config, namespace) {
		listing.Go(func() { // each at once: the first list of a custom kind takes a second
			got, err := client.Resource(r).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Errorf("%s: %v", r.Resource, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, got.Items...)
		})
	}
	listing.Wait()
	return all
}

// listable returns the kinds that can be listed, those with namespaces alone
// unless the namespace is empty.
func listable(t *testing.T, config *rest.Config, namespace string) (kinds []schema.GroupVersionResource) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	preferred := discovery.ServerPreferredNamespacedResources
	if namespace == "" {
		preferred = discovery.ServerPreferredResources
	}
	lists, err := preferred(client)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") {
				kinds = append(kinds, version.WithResource(r.Name))
			}
		}
	}
	return kinds
}
