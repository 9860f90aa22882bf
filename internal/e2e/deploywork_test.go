package e2e

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	tunnelkube "github.com/causewayproject/causeway/tunnel/kubernetes"
)

const (
	serverBase    = "tunnel-server"
	workloadName  = "default/prod"
	gatewayOfBase = "tunnel-server-gateway.tunnel-server.svc:3128"
)

// tunnelPods are the replicas of the server.
type tunnelPods struct {
	d    *deploying
	t    *testing.T
	pods []*pod
	turn atomic.Int32
	led  atomic.Pointer[[]*pod] // those that Services lead to
}

// endpoints does what the controller of EndpointSlices does.
func (s *tunnelPods) endpoints() {
	s.t.Helper()
	led := slices.Clone(s.pods)
	s.led.Store(&led)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: serverBase, Name: "peers", Labels: map[string]string{discoveryv1.LabelServiceName: "tunnel-server-peers"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("agents"), Port: ptr.To[int32](8443), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, p := range s.pods {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{p.ip}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
	}
	err := s.d.admin.Create(s.t.Context(), slice)
	if apierrors.IsAlreadyExists(err) {
		err = s.d.admin.Update(s.t.Context(), slice)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// lead is one replica after the other, as a Service does.
func (s *tunnelPods) lead(port string) string {
	led := *s.led.Load()
	return led[int(s.turn.Add(1))%len(led)].address(port)
}

// reach has kubectl go by the gateway of one replica.
func (s *tunnelPods) reach(config, address, want string) {
	s.t.Helper()
	path := s.d.path("through")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(config, gatewayOfBase, address)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "kubectl by "+address, func(ctx context.Context) error {
		out, err := s.d.Node.Run(ctx, s.d.bed.Kubectl(path, "get", "namespace", "default", "-o", "name", "--request-timeout=10s"))
		if err == nil && out != want {
			err = fmt.Errorf("got %q, want %q", out, want)
		}
		return err
	})
}

// testTunnel goes the way of the README: from nothing to a kubectl that reaches
// a workload cluster, by each replica, and through the restart of one.
func (d *deploying) testTunnel(t *testing.T) {
	s := &tunnelPods{d: d, t: t}
	for range 3 {
		s.pods = append(s.pods, d.start(t, serverBase))
	}
	for _, p := range s.pods {
		p.ready(t)
	}
	s.endpoints()
	agents := d.service(t, serverBase, "tunnel-server", s.lead)
	front := d.service(t, serverBase, "tunnel-server-gateway", s.lead)
	first := s.pods[0]

	s.forgotten()
	d.kubectl(t, first.exec(t, "", "enroll", "--format", "secret", "--server", agents, workloadName), "apply", "--server-side", "--validate=strict", "-f", "-")
	agent := d.start(t, "tunnel-agent")
	agent.ready(t)
	if !strings.Contains(agent.running.Stderr(), "cluster="+workloadName) {
		t.Errorf("the agent says %s", agent.running.Stderr())
	}
	eventually(t, "a token that ended long ago to be gone", func(ctx context.Context) error {
		if _, err := d.secret(ctx, serverBase, forgottenToken); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})

	admin := string(d.kubeconfig(kubeconfig.Credentials{CAKey: d.Kube.CA.KeyPEM()}, "nowhere.example.com", 1))
	config := first.exec(t, admin, "kubeconfig", workloadName)
	if !strings.Contains(config, gatewayOfBase) {
		t.Errorf("got a kubeconfig without %s", gatewayOfBase)
	}
	for _, p := range s.pods {
		s.reach(config, p.address("connect"), "namespace/default\n")
	}
	s.reach(config, front, "namespace/default\n")

	first.exec(t, "key", "payload", workloadName, "name")
	s.restart()
	for _, p := range s.pods {
		p.ready(t)
		s.reach(config, p.address("connect"), "namespace/default\n")
	}
	s.reviewTokens(config)
	s.revoke(agent)
	agent.end(t)
	for _, p := range s.pods {
		p.end(t)
	}
}

// restart replaces the oldest replica, and returns the one that comes last.
func (s *tunnelPods) restart() *pod {
	s.t.Helper()
	s.pods[0].end(s.t)
	last := s.d.start(s.t, serverBase)
	s.pods = append(s.pods[1:], last)
	s.endpoints()
	return last
}

var connectedAs = regexp.MustCompile(`msg=connected .* agent=(\S+)`)

// revoke ends the agent, whichever replica it is at.
func (s *tunnelPods) revoke(agent *pod) {
	s.t.Helper()
	found := connectedAs.FindStringSubmatch(agent.running.Stderr())
	if found == nil {
		s.t.Fatal("the agent does not say who it is")
	}
	s.pods[0].exec(s.t, "", "revoke", workloadName, found[1])
	eventually(s.t, "the agent to be shut out", func(ctx context.Context) error {
		if err := agent.probe(ctx, "/readyz", intstr.FromString("status")); err == nil {
			return errors.New("it is ready")
		}
		return nil
	})
}

// forgottenToken is the Secret of the token aaaaaaaaaaaaaaaa, which ended long ago.
const forgottenToken = "tunnel-token-0c0beacef8877bbf2416eb00f2b5dc96354e26dd1df5517320459b1236860f8c"

// forgotten makes a token that the next enrolment is to delete.
func (s *tunnelPods) forgotten() {
	s.t.Helper()
	s.d.create(s.t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: serverBase, Name: forgottenToken, Labels: map[string]string{tunnelkube.LabelToken: "tunnel"}},
		Data:       map[string][]byte{"value": []byte(`{"id":"aaaaaaaaaaaaaaaa","cluster":"a","created":"2020-01-01T00:00:00Z","expires":"2020-01-02T00:00:00Z"}`)},
	})
}

// testProvider: the provider makes, changes and deletes kubeconfigs of Clusters.
func (d *deploying) testProvider(t *testing.T) {
	const namespace = "clusters"
	m := &management{admin: d.admin, bed: d.bed}
	w := workload{name: "deploy", kube: d.Kube}
	p := d.start(t, "kubeconfig-provider")
	c := m.bear(t, namespace, "own", w, birth{noControlPlane: true})
	kubeconfigOf := func(what, name string, is func(*corev1.Secret) bool) {
		t.Helper()
		eventually(t, what, func(ctx context.Context) error {
			s, err := d.secret(ctx, namespace, name)
			if err == nil && !is(s) {
				err = errors.New("it is not that yet")
			}
			return err
		})
	}
	kubeconfigOf("a kubeconfig", "own-kubeconfig", func(s *corev1.Secret) bool { return len(s.Data[kubeconfig.SecretKey]) > 0 })
	p.ready(t)
	m.routeReady(t, c, metav1.ConditionTrue)
	m.annotate(t, c, map[string]string{provider.AnnotationTLSServerName: "kubernetes.default.svc"})
	kubeconfigOf("a changed kubeconfig", "own-kubeconfig", func(s *corev1.Secret) bool {
		return strings.Contains(string(s.Data[kubeconfig.SecretKey]), "tls-server-name: kubernetes.default.svc")
	})
	d.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hidden-kubeconfig"}})
	m.bear(t, namespace, "hidden", w, birth{noControlPlane: true})
	eventually(t, "an Event about a Secret in the way", func(context.Context) error {
		if got := d.kubectl(t, "", "get", "events.events.k8s.io", "-n", namespace, "-o", "jsonpath={.items[*].reason}"); !strings.Contains(got, "WriteFailed") {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
	second := m.bear(t, namespace, "second", w, birth{annotations: map[string]string{
		provider.AnnotationMode: string(provider.Secondary), provider.AnnotationTLSServerName: "kubernetes.default.svc"}})
	m.write(t, second, w)
	kubeconfigOf("a second kubeconfig", "second-proxied", func(s *corev1.Secret) bool { return true })
	m.annotate(t, second, map[string]string{provider.AnnotationMode: string(provider.Off)})
	eventually(t, "the second kubeconfig to be deleted", func(ctx context.Context) error {
		if _, err := d.secret(ctx, namespace, "second-proxied"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v, want that it is not found", err)
		}
		return nil
	})
	p.end(t)
}

// testInjector: the API server finds the webhook by its Service, and pods get the
// variables.
func (d *deploying) testInjector(t *testing.T) {
	d.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: injectorBase, Name: "proxy"}, Data: map[string][]byte{
		"HTTPS_PROXY": []byte("http://user:" + injectPassword + "@proxy.example.com:3128"), "NO_PROXY": []byte("svc")}})
	d.startInjector(t, "default").end(t)
}

const injectorBase = "proxy-injector"

// startInjector starts the webhook, and returns when the API server asks it about the
// namespace's pods.
func (d *deploying) startInjector(t *testing.T, namespace string) *pod {
	t.Helper()
	d.certifyInjector(t)
	p := d.start(t, injectorBase)
	p.ready(t)
	d.leadToInjector(t, p.address)
	eventually(t, "pods with the variables", func(ctx context.Context) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "injected"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
		if err := d.admin.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if got := variables(pod.Spec.Containers[0].Env); !slices.Contains(got, "HTTPS_PROXY=(proxy)") {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
	return p
}

// certifyInjector makes the Secret with the webhook's certificate.
func (d *deploying) certifyInjector(t *testing.T) {
	t.Helper()
	cert, key := pki.PEM(d.Kube.CA.Server(injectorBase + "." + injectorBase + ".svc"))
	d.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: injectorBase, Name: injectorBase + "-tls"},
		Data: map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key}})
}

// leadToInjector leads the API server to the webhook's pods, which it trusts then.
func (d *deploying) leadToInjector(t *testing.T, target func(port string) string) {
	t.Helper()
	d.service(t, injectorBase, injectorBase, target)
	for n := range 2 { // what cainjector does
		patch := fmt.Sprintf(`[{"op":"add","path":"/webhooks/%d/clientConfig/caBundle","value":%q}]`, n, base64.StdEncoding.EncodeToString(d.Kube.CA.CertPEM()))
		d.kubectl(t, "", "patch", "mutatingwebhookconfiguration", injectorBase, "--type=json", "-p", patch)
	}
}
