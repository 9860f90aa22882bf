package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
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
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
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

// A staticPodKube is a kube-apiserver with the variables that kubeadm wrote into its
// manifest.
type staticPodKube struct {
	*bed.Kube
	bed     *bed.Bed
	proxy   *connectRecorder
	clients *kubernetes.Clientset
	spec    *bootstrapv1.KubeadmConfigSpec
	vars    map[string]string
}

const staticPodNamespace = "static-pods"

func startStaticPodKube(t *testing.T) *staticPodKube {
	t.Helper()
	b := sharedBed(t)
	s := &staticPodKube{bed: b, proxy: startConnectRecorder(t, b.Network.API)}
	url := "http://user:p%40ss@" + s.proxy.address
	merged, err := proxyconfig.Layers{
		Installation: proxyconfig.Config{HTTPProxy: url, HTTPSProxy: url},
		Cluster: noproxy.Cluster{NodeCIDRs: []string{"192.0.2.0/24"}, ServiceCIDRs: []string{"10.0.0.0/24"}, PodCIDRs: []string{"10.244.0.0/16"},
			ControlPlaneHosts: []string{staticPodKubeIP}},
	}.Merge()
	if err != nil {
		t.Fatal(err)
	}
	s.spec = clusterAPISpec(t, kubeadmSpec(t, proxyconfig.StaticPodsEnvironment, merged.Config))
	s.vars = renderStaticPods(t, s.spec, resolveFiles(t, s.spec, machineSecret(t, merged.Config)), newKubeadm)["kube-apiserver"]
	if len(s.vars) != 6 {
		t.Fatalf("got %q", s.vars)
	}
	if err := b.Network.AddHost(t.Context(), staticPodKubeIP); err != nil {
		t.Fatal(err)
	}
	if s.Kube, err = b.StartKube(t.Context(), b.Network.API, "static-pod", staticPodKubeIP, bed.KubeOptions{Env: s.env()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	if s.clients, err = kubernetes.NewForConfig(s.Config()); err != nil {
		t.Fatal(err)
	}
	if err := s.AddNamespace(t.Context(), staticPodNamespace); err != nil {
		t.Fatal(err)
	}
	return s
}

// env is the variables as name=value.
func (s *staticPodKube) env() []string {
	var env []string
	for name, value := range s.vars {
		env = append(env, name+"="+value)
	}
	return env
}

// asked checks what the proxy was asked for since the last call.
func (s *staticPodKube) asked(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := s.proxy.take(); !slices.Equal(got, want) {
		t.Errorf("%s: the proxy was asked for %q, want %q", what, got, want)
	}
}

// kube-apiserver reaches kubelets of known networks and the Services of webhooks
// itself; what is outside, and a node of a network that nobody told of, it asks the
// proxy for.
func TestAPIServerWithTheVariables(t *testing.T) {
	t.Parallel()
	s := startStaticPodKube(t)
	s.asked(t, "the start")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.AddPod(ctx, staticPodNamespace, "near"); err != nil {
		t.Fatal(err)
	}
	pods := s.clients.CoreV1().Pods(staticPodNamespace)
	if text, err := pods.GetLogs("near", &corev1.PodLogOptions{}).DoRaw(ctx); err != nil || len(text) == 0 {
		t.Errorf("logs: got %q, %v", text, err)
	}
	s.asked(t, "logs of a known node")
	// Nothing answers at the Service's address.
	err := s.callWebhook(ctx, t, "svc", admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: staticPodNamespace, Name: "hook"}})
	if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("a webhook's Service: got %v, want that it was called", err)
	}
	s.asked(t, "a webhook's Service")

	if err := s.callWebhook(ctx, t, "url", admissionv1.WebhookClientConfig{URL: ptr.To("https://hook.example.com/")}); err == nil {
		t.Error("a webhook outside has answered")
	}
	s.asked(t, "a webhook outside", "CONNECT hook.example.com:443")
	s.addUnknownNode(ctx, t)
	if _, err := pods.GetLogs("far", &corev1.PodLogOptions{}).DoRaw(ctx); err == nil {
		t.Error("a node that does not exist has logs")
	}
	s.asked(t, "logs of an unknown node", "CONNECT "+unknownNodeIP+":10250")

	// Who may read that DaemonSet reads the password.
	s.addKubeProxy(ctx, t)
	s.asked(t, "kubeadm")
	kubeProxy, err := s.clients.AppsV1().DaemonSets("kube-system").Get(ctx, "kube-proxy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	copied := map[string]string{}
	for _, v := range kubeProxy.Spec.Template.Spec.Containers[0].Env {
		if _, ok := s.vars[v.Name]; ok {
			copied[v.Name] = v.Value
		}
	}
	if !maps.Equal(copied, s.vars) {
		t.Errorf("kube-proxy: got %q, want %q: the documentation says that kubeadm copies them", copied, s.vars)
	}
}

// addKubeProxy has kubeadm deploy kube-proxy, with the variables in its environment.
func (s *staticPodKube) addKubeProxy(ctx context.Context, t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	cluster, init := kubeadmConfigs(t, s.spec, newKubeadm)
	writeFile(t, filepath.Join(dir, "kubeadm.yaml"), cluster+"\n---\n"+init)
	writeFile(t, filepath.Join(dir, "kubeconfig"), string(tunnelKubeconfig(t, s.bed, kubeconfig.Endpoint{Host: s.Host(), Port: s.Port()})))
	argv := []string{filepath.Join(os.Getenv(bed.BinEnv), "kubeadm"), "init", "phase", "addon", "kube-proxy",
		"--kubeconfig=" + filepath.Join(dir, "kubeconfig"), "--config=" + filepath.Join(dir, "kubeadm.yaml")}
	if out, err := s.bed.Network.API.Run(ctx, bed.Command{Argv: argv, Env: s.env()}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// callWebhook makes a ConfigMap that the webhook has to admit.
func (s *staticPodKube) callWebhook(ctx context.Context, t *testing.T, name string, config admissionv1.WebhookClientConfig) error {
	t.Helper()
	if config.Service != nil {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: config.Service.Name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
		if _, err := s.clients.CoreV1().Services(staticPodNamespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	hooks := s.clients.AdmissionregistrationV1().ValidatingWebhookConfigurations()
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
		_, called = s.clients.CoreV1().ConfigMaps(staticPodNamespace).Create(ctx, made, metav1.CreateOptions{})
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

func (s *staticPodKube) addUnknownNode(ctx context.Context, t *testing.T) {
	t.Helper()
	node, err := s.clients.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "far"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: unknownNodeIP}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	if _, err := s.clients.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: corev1.PodSpec{NodeName: "far", Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	if _, err := s.clients.CoreV1().Pods(staticPodNamespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
