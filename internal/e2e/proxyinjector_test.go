package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/proxyconfig"
)

// certManagerLabel is what the manifest's own rule goes by.
const certManagerLabel = "app.kubernetes.io/instance=cert-manager"

// injection is the proxy injector, deployed beside the API server.
type injection struct {
	t testing.TB
	// namespace is the one whose pods the API server asks about, beside
	// cert-manager's in kube-system. What is made elsewhere has it in its name:
	// the bed outlives the test, and the test may run again.
	namespace string

	bed     *bed.Bed
	clients *kubernetes.Clientset
	kubectl string // path of a kubeconfig
	program *bed.Running
	memory  int64 // the limit of the manifest
}

func startInjection(t testing.TB, b *bed.Bed) *injection {
	t.Helper()
	config := b.Kube.Config()
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	in := &injection{t: t, bed: b, clients: clients, kubectl: filepath.Join(t.TempDir(), "kubeconfig"),
		namespace: "inject-" + strings.ToLower(rand.Text()[:8])}
	beside := tunnelKubeconfig(t, b, kubeconfig.Endpoint{Host: bed.APIIP, Port: bed.APIPort})
	if err := os.WriteFile(in.kubectl, beside, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Kube.AddNamespace(t.Context(), in.namespace); err != nil {
		t.Fatal(err)
	}
	p := &programs{t: t, bed: b, dir: t.TempDir()}
	goBuild(t, programsModule, p.dir, "./causeway") // as it is deployed: its time counts
	cert, key := pki.PEM(b.Kube.CA.Server(bed.APIIP))
	for name, text := range map[string][]byte{
		"tls.crt": cert, "tls.key": key, "HTTPS_PROXY": []byte(injectConfig.HTTPSProxy), "NO_PROXY": []byte(injectConfig.NoProxy),
	} {
		if err := os.WriteFile(p.path(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var deployment appsv1.Deployment
	in.manifest("Deployment", &deployment)
	container := deployment.Spec.Template.Spec.Containers[0]
	in.memory = container.Resources.Limits.Memory().Value()
	var env []string
	for _, v := range container.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	in.program = p.start(b.Network.API, bed.Command{Env: env, Argv: []string{p.path("causeway"), "injector", "--listen", net.JoinHostPort(bed.APIIP, "0"), "--health", "",
		"--config", p.dir, "--cert", p.path("tls.crt"), "--key", p.path("tls.key"), "--secret", "proxy", "--drain-delay", "1ms",
		"--always", "kube-system/" + certManagerLabel}})
	in.register(in.address())
	return in
}

const injectPassword = "hunter2-canary"

var injectConfig = proxyconfig.Config{HTTPSProxy: "http://user:" + injectPassword + "@proxy.example.com:3128", NoProxy: "svc,.corp.test"}

var reviewsAt = regexp.MustCompile(`for=reviews address=(\S+)`)

func (in *injection) address() (address string) {
	in.t.Helper()
	err := bed.Poll(in.t.Context(), "the injector to listen", func(context.Context) error {
		found := reviewsAt.FindStringSubmatch(in.program.Stderr())
		if found == nil {
			return errors.New("it does not say where yet")
		}
		address = found[1]
		return nil
	})
	if err != nil {
		in.t.Fatal(err)
	}
	return address
}

// manifest reads the object of a kind in the manifest.
func (in *injection) manifest(kind string, to any) {
	in.t.Helper()
	text, err := os.ReadFile("../../examples/deploy/proxy-injector/manifest.yaml")
	if err != nil {
		in.t.Fatal(err)
	}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if bytes.Contains(document, []byte("\nkind: "+kind+"\n")) {
			if err := yaml.UnmarshalStrict(document, to); err != nil {
				in.t.Fatal(err)
			}
			return
		}
	}
	in.t.Fatalf("the manifest has no %s", kind)
}

// register creates the manifest's own configuration. What differs: the address,
// since Services lead nowhere here, and the namespace, since other tests have
// pods.
func (in *injection) register(address string) {
	in.t.Helper()
	var config admissionregistrationv1.MutatingWebhookConfiguration
	in.manifest("MutatingWebhookConfiguration", &config)
	for i := range config.Webhooks {
		url := "https://" + address + *config.Webhooks[i].ClientConfig.Service.Path
		config.Webhooks[i].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: in.bed.Kube.CA.CertPEM()}
	}
	first := config.Webhooks[0].NamespaceSelector
	first.MatchExpressions = append(first.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{in.namespace, "kube-system"}})
	webhooks := in.clients.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := webhooks.Create(in.t.Context(), &config, metav1.CreateOptions{}); err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() {
		if err := webhooks.Delete(context.WithoutCancel(in.t.Context()), config.Name, metav1.DeleteOptions{}); err != nil {
			in.t.Error(err)
		}
	})
}

func (in *injection) run(args ...string) (string, error) {
	return in.bed.Network.API.Run(in.t.Context(), in.bed.Kubectl(in.kubectl, args...))
}

func (in *injection) pod(name string) string { return in.namespace + "-" + name }

// create has kubectl create a pod, and returns the names of the variables that
// each of its containers has then.
func (in *injection) create(namespace, name string, args ...string) ([]string, error) {
	args = append([]string{"run", in.pod(name), "-n", namespace, "--image=none", "--restart=Never", "-o", "yaml"}, args...)
	out, err := in.run(args...)
	if err != nil {
		return nil, err
	}
	if strings.Contains(out, injectPassword) {
		in.t.Errorf("pod %s: got the password in it", name)
	}
	var pod corev1.Pod
	if err := yaml.Unmarshal([]byte(out), &pod); err != nil {
		return nil, err
	}
	return variables(pod.Spec.Containers[0].Env), nil
}

func variables(env []corev1.EnvVar) []string {
	lines := []string{}
	for _, v := range env {
		if v.ValueFrom != nil {
			v.Value = "(" + v.ValueFrom.SecretKeyRef.Name + ")"
		}
		lines = append(lines, v.Name+"="+v.Value)
	}
	return lines
}

// podList is what pods reach directly, before the API server's own address.
const podList = "localhost,127.0.0.1,svc,cluster.local,cluster.local.,kubernetes,kubernetes.default,.corp.test"

var injected = []string{"HTTPS_PROXY=(proxy)", "https_proxy=(proxy)", "NO_PROXY=" + podList + ",$(KUBERNETES_SERVICE_HOST)", "no_proxy=" + podList + ",$(KUBERNETES_SERVICE_HOST)"}

// await waits until a pod that is created, in a dry run, is as want says: the
// API server takes up a configuration after a while.
func (in *injection) await(what string, want func(env []string, err error) bool) {
	in.t.Helper()
	err := bed.Poll(in.t.Context(), what, func(context.Context) error {
		env, err := in.create(in.namespace, "dry", "--dry-run=server")
		if !want(env, err) {
			return fmt.Errorf("got %q, %v", env, err)
		}
		return nil
	})
	if err != nil {
		in.t.Fatal(err)
	}
}

// The API server has pods carry the variables, and whom it asks when nobody
// answers is the failurePolicy's matter.
func TestProxyInjector(t *testing.T) {
	b := sharedBed(t)
	in := startInjection(t, b)
	in.await("the webhook to be asked", func(env []string, err error) bool { return err == nil && slices.Equal(env, injected) })
	own := []string{"https_proxy=http://own.example.com"}
	for _, tt := range []struct {
		name, namespace string
		args            []string
		want            []string
	}{
		{"bare", in.namespace, nil, injected},
		{"others", in.namespace, []string{"--env=A=b"}, append([]string{"A=b"}, injected...)},
		{"own", in.namespace, []string{"--env=" + own[0]}, own},
		{"opted-out", in.namespace, []string{"--labels=causewayproject.github.io/inject-proxy=false"}, []string{}},
		{"system", "kube-system", nil, []string{}},
		{"cert-manager", "kube-system", []string{"--labels=" + certManagerLabel}, injected},
		{"elsewhere", "default", nil, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := in.create(tt.namespace, tt.name, tt.args...)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
	t.Run("debug", in.debug)
	t.Run("flood", in.flood)
	in.down()
	t.Run("canary", in.canary)
}

// debug adds two ephemeral containers, one after the other: a patch of the
// first would have the second refused.
func (in *injection) debug(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		if _, err := in.run("debug", in.pod("bare"), "-n", in.namespace, "--image=none", "--container="+name, "--attach=false"); err != nil {
			t.Fatal(err)
		}
	}
	pod, err := in.clients.CoreV1().Pods(in.namespace).Get(t.Context(), in.pod("bare"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.EphemeralContainers) != 2 {
		t.Fatalf("got %d ephemeral containers, want 2", len(pod.Spec.EphemeralContainers))
	}
	for _, c := range pod.Spec.EphemeralContainers {
		if got := variables(c.Env); !slices.Equal(got, injected) {
			t.Errorf("%s: got %q, want %q", c.Name, got, injected)
		}
	}
}

// down is what happens without the injector: nothing, and a refusal.
func (in *injection) down() {
	t := in.t
	t.Helper()
	in.program.Stop()
	if env, err := in.create(in.namespace, "ignored"); err != nil || len(env) > 0 {
		t.Errorf("down, Ignore: got %q, %v; want a pod without variables", env, err)
	}
	webhooks := in.clients.AdmissionregistrationV1().MutatingWebhookConfigurations()
	config, err := webhooks.Get(t.Context(), "proxy-injector", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fail := admissionregistrationv1.Fail
	for i := range config.Webhooks {
		config.Webhooks[i].FailurePolicy = &fail
	}
	if _, err := webhooks.Update(t.Context(), config, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	in.await("pods to be refused", func(_ []string, err error) bool {
		return err != nil && strings.Contains(err.Error(), `failed calling webhook "pods.proxy-injector.causewayproject.github.io"`)
	})
	if env, err := in.create("kube-system", "failed"); err != nil || len(env) > 0 {
		t.Errorf("down, Fail: got %q, %v in kube-system; want a pod without variables", env, err)
	}
}
