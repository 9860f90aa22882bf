package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
)

const (
	staticPodKubeIP = "192.0.2.16"
	unknownNodeIP   = "198.51.100.77"
)

// connectRecorder is a proxy that keeps what it is asked for, and refuses it.
type connectRecorder struct {
	address string
	mu      sync.Mutex // guards the field below
	asked   []string
}

func startConnectRecorder(t *testing.T, ns *bed.Namespace) *connectRecorder {
	t.Helper()
	listener, err := ns.Listen(net.JoinHostPort(bed.APIIP, "0"))
	if err != nil {
		t.Fatal(err)
	}
	r := &connectRecorder{address: listener.Addr().String()}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked = append(r.asked, req.Method+" "+req.Host)
		w.WriteHeader(http.StatusForbidden)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close(); <-done })
	return r
}

// take returns each target once that was asked for since it was called before.
func (r *connectRecorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := slices.Compact(slices.Sorted(slices.Values(r.asked)))
	r.asked = nil
	return asked
}

// A kube-apiserver runs with the variables that kubeadm wrote into its manifest.
// It reaches kubelets of known networks and the Services of webhooks itself; what
// is outside, and a node of a network that nobody told of, it asks the proxy for.
func TestAPIServerWithTheVariables(t *testing.T) {
	t.Parallel()
	b := sharedBed(t)
	proxy := startConnectRecorder(t, b.Network.API)
	merged, err := proxyconfig.Layers{
		Installation: proxyconfig.Config{HTTPProxy: "http://user:p%40ss@" + proxy.address, HTTPSProxy: "http://user:p%40ss@" + proxy.address},
		Cluster: noproxy.Cluster{NodeCIDRs: []string{"192.0.2.0/24"}, ServiceCIDRs: []string{"10.0.0.0/24"}, PodCIDRs: []string{"10.244.0.0/16"},
			ControlPlaneHosts: []string{staticPodKubeIP}},
	}.Merge()
	if err != nil {
		t.Fatal(err)
	}
	spec := clusterAPISpec(t, kubeadmSpec(t, proxyconfig.StaticPodsEnvironment, merged.Config))
	vars := renderStaticPods(t, spec, resolveFiles(t, spec, machineSecret(t, merged.Config)), newKubeadm)["kube-apiserver"]
	if len(vars) != 6 {
		t.Fatalf("got %q", vars)
	}
	var env []string
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	if err := b.Network.AddHost(t.Context(), staticPodKubeIP); err != nil {
		t.Fatal(err)
	}
	k, err := b.StartKubeWithEnv(t.Context(), b.Network.API, "static-pod", staticPodKubeIP, env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	clients, err := kubernetes.NewForConfig(k.Config())
	if err != nil {
		t.Fatal(err)
	}
	const namespace = "static-pods"
	if err := k.AddNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	if asked := proxy.take(); len(asked) > 0 {
		t.Errorf("kube-apiserver started by asking the proxy for %q", asked)
	}

	// The kubelet of the bed's node is in a known network.
	if err := k.AddPod(t.Context(), namespace, "near"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if text, err := clients.CoreV1().Pods(namespace).GetLogs("near", &corev1.PodLogOptions{}).DoRaw(ctx); err != nil || len(text) == 0 {
		t.Errorf("logs: got %q, %v", text, err)
	}
	// A webhook in the cluster: nothing answers at the Service's address.
	err = callWebhook(ctx, t, clients, namespace, "svc", admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: namespace, Name: "hook"}})
	if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("a webhook's Service: got %v, want that it was called", err)
	}
	if asked := proxy.take(); len(asked) > 0 {
		t.Errorf("the proxy was asked for %q, want nothing of the cluster", asked)
	}

	err = callWebhook(ctx, t, clients, namespace, "url", admissionv1.WebhookClientConfig{URL: ptr.To("https://hook.example.com/")})
	if asked := proxy.take(); err == nil || !slices.Equal(asked, []string{"CONNECT hook.example.com:443"}) {
		t.Errorf("a webhook outside: got %v, and the proxy was asked for %q", err, asked)
	}
	addUnknownNode(ctx, t, clients, namespace)
	_, err = clients.CoreV1().Pods(namespace).GetLogs("far", &corev1.PodLogOptions{}).DoRaw(ctx)
	if asked := proxy.take(); err == nil || !slices.Equal(asked, []string{"CONNECT " + unknownNodeIP + ":10250"}) {
		t.Errorf("a node of no known network: got %v, and the proxy was asked for %q", err, asked)
	}
}

// callWebhook makes a ConfigMap that the webhook has to admit.
func callWebhook(ctx context.Context, t *testing.T, clients kubernetes.Interface, namespace, name string, config admissionv1.WebhookClientConfig) error {
	t.Helper()
	if config.Service != nil {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: config.Service.Name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
		if _, err := clients.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	hooks := clients.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: name + ".hook.test", ClientConfig: config, AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
		TimeoutSeconds: ptr.To[int32](2),
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}}},
	}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer hooks.Delete(ctx, name, metav1.DeleteOptions{})
	// kube-apiserver takes a moment to see the webhook and the Service.
	var called error
	err = bed.Poll(ctx, "the webhook to be called", func(ctx context.Context) error {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: name}}
		_, called = clients.CoreV1().ConfigMaps(namespace).Create(ctx, made, metav1.CreateOptions{})
		if called == nil || strings.Contains(called.Error(), "not found") {
			return fmt.Errorf("not called yet: %v", called)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return called
}

func addUnknownNode(ctx context.Context, t *testing.T, clients kubernetes.Interface, namespace string) {
	t.Helper()
	node, err := clients.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "far"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: unknownNodeIP}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	if _, err := clients.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: corev1.PodSpec{NodeName: "far", Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	if _, err := clients.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
