package injector

import (
	"errors"
	"slices"
	"testing"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/causewayproject/causeway/internal/test/clitest"
	"github.com/causewayproject/causeway/proxyconfig"
)

// manifest is what is in the file, one of each.
type manifest struct {
	namespace  corev1.Namespace
	account    corev1.ServiceAccount
	deployment appsv1.Deployment
	budget     policyv1.PodDisruptionBudget
	service    corev1.Service
	policy     networkingv1.NetworkPolicy
	webhooks   admissionregistrationv1.MutatingWebhookConfiguration
}

func readManifest(t *testing.T) *manifest {
	t.Helper()
	m := new(manifest)
	clitest.ReadManifest(t, "../../../deploy/proxy-injector/manifest.yaml", map[string]any{
		"Namespace": &m.namespace, "ServiceAccount": &m.account, "Deployment": &m.deployment,
		"PodDisruptionBudget": &m.budget, "Service": &m.service, "NetworkPolicy": &m.policy, "MutatingWebhookConfiguration": &m.webhooks,
	})
	return m
}

// TestManifest parses strictly, and its parts fit each other.
func TestManifest(t *testing.T) {
	m := readManifest(t)
	template := m.deployment.Spec.Template
	for name, selector := range map[string]map[string]string{
		"Deployment": m.deployment.Spec.Selector.MatchLabels, "Service": m.service.Spec.Selector, "PodDisruptionBudget": m.budget.Spec.Selector.MatchLabels,
		"NetworkPolicy": m.policy.Spec.PodSelector.MatchLabels,
	} {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(template.Labels)) {
			t.Errorf("the %s selects %v, which the pods with %v are not", name, selector, template.Labels)
		}
	}
	for _, namespace := range []string{m.account.Namespace, m.deployment.Namespace, m.budget.Namespace, m.service.Namespace, m.policy.Namespace} {
		if namespace != m.namespace.Name {
			t.Errorf("got namespace %q, want %q", namespace, m.namespace.Name)
		}
	}
	if template.Spec.ServiceAccountName != m.account.Name {
		t.Errorf("got service account %q, want %q", template.Spec.ServiceAccountName, m.account.Name)
	}
	c := template.Spec.Containers[0]
	port := m.service.Spec.Ports[0]
	if n := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port.TargetPort.String() }); n < 0 || c.Ports[n].ContainerPort != 8443 {
		t.Errorf("got target port %s of %v, want that of 8443", &port.TargetPort, c.Ports)
	}
	for _, v := range template.Spec.Volumes {
		if v.Secret == nil || *v.Secret.DefaultMode != 0o440 {
			t.Errorf("volume %s: got %v, want a Secret with mode 0440", v.Name, v.Secret)
		}
	}
}

// What the API server asks about is what the program has to do with.
func TestManifestScope(t *testing.T) {
	m := readManifest(t)
	var f flags
	set := pflag.NewFlagSet("injector", pflag.ContinueOnError)
	f.add(set)
	if err := errors.Join(set.Parse(m.deployment.Spec.Template.Spec.Containers[0].Args[1:]), f.scope()); err != nil {
		t.Fatal(err)
	}
	if grace := m.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds; f.delay+f.drain >= 1e9*30 || *grace != 30 {
		t.Errorf("got %v and %v to drain in %d s", f.delay, f.drain, *grace)
	}
	injector, _, err := f.injector(proxyconfig.Config{HTTPProxy: "http://u:p@proxy"}, f.facts())
	if err != nil {
		t.Fatal(err)
	}
	certManager := map[string]string{"app.kubernetes.io/instance": "cert-manager"}
	off := map[string]string{proxyconfig.LabelInject: "false"}
	for _, tt := range []struct {
		name, namespace string
		pod             map[string]string
		want            bool
	}{
		{"a pod", "web", nil, true},
		{"opted out", "web", off, false},
		{"kube-system", "kube-system", nil, false},
		{"cert-manager", "kube-system", certManager, true},
		{"its own", m.namespace.Name, m.deployment.Spec.Template.Labels, false},
	} {
		asked := 0
		for _, w := range m.webhooks.Webhooks {
			if matches(t, w.NamespaceSelector, labels.Set{corev1.LabelMetadataName: tt.namespace}) && matches(t, w.ObjectSelector, tt.pod) {
				asked++
			}
		}
		wants, why := injector.Wants(proxyconfig.Namespace{Name: tt.namespace}, &metav1.ObjectMeta{Labels: tt.pod})
		if wants != tt.want || (asked == 1) != tt.want || asked > 1 {
			t.Errorf("%s: asked by %d webhooks, and got %t (%s); want %t", tt.name, asked, wants, why, tt.want)
		}
	}
	if matches(t, m.webhooks.Webhooks[0].NamespaceSelector, off) {
		t.Error("a namespace that opted out is asked about")
	}
}

func matches(t *testing.T, s *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return s != nil && selector.Matches(set)
}

func TestManifestWebhooks(t *testing.T) {
	m := readManifest(t)
	for _, w := range m.webhooks.Webhooks {
		s := w.ClientConfig.Service
		if s.Name != m.service.Name || s.Namespace != m.service.Namespace || *s.Port != m.service.Spec.Ports[0].Port {
			t.Errorf("%s: got service %v, want that of the manifest", w.Name, s)
		}
		// Required by the API, or what the package's documentation is about.
		if *w.SideEffects != admissionregistrationv1.SideEffectClassNone || !slices.Equal(w.AdmissionReviewVersions, []string{"v1"}) ||
			*w.FailurePolicy != admissionregistrationv1.Ignore || *w.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy {
			t.Errorf("%s: got %v, %v, %v, %v", w.Name, *w.SideEffects, w.AdmissionReviewVersions, *w.FailurePolicy, *w.ReinvocationPolicy)
		}
	}
}
