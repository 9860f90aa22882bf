package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/examples/deploy"
)

// A base is what is in a directory.
type base struct {
	name      string
	objects   []runtime.Object
	namespace *corev1.Namespace
	account   *corev1.ServiceAccount
	replicas  int32
	template  *corev1.PodTemplateSpec
}

// bases reads the directories.
func bases(t *testing.T) (all []*base) {
	t.Helper()
	kustomizations, err := filepath.Glob("*/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Glob("*/manifest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(kustomizations, manifests...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, file := filepath.Split(file)
		if file == "kustomization.yaml" {
			checkKustomization(t, name, text)
			continue
		}
		b := &base{name: filepath.Clean(name)}
		b.decode(t, text)
		all = append(all, b)
	}
	if len(all) < 4 {
		t.Fatalf("got %d bases", len(all))
	}
	return all
}

// checkKustomization: the base is the manifest, and all of it.
func checkKustomization(t *testing.T, name string, text []byte) {
	t.Helper()
	var k struct {
		APIVersion, Kind string
		Resources        []string
	}
	if err := yaml.UnmarshalStrict(text, &k); err != nil || k.Kind != "Kustomization" || !slices.Equal(k.Resources, []string{"manifest.yaml"}) {
		t.Errorf("%s: got %+v, %v", name, k, err)
	}
}

// decode takes what is in a manifest, strictly: a field that Kubernetes does not
// know is an error.
func (b *base) decode(t *testing.T, text []byte) {
	t.Helper()
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v in\n%s", b.name, err, document)
		}
		b.take(object)
	}
}

func (b *base) take(object runtime.Object) {
	b.objects = append(b.objects, object)
	switch o := object.(type) {
	case *corev1.Namespace:
		b.namespace = o
	case *corev1.ServiceAccount:
		b.account = o
	case *appsv1.Deployment:
		b.template, b.replicas = &o.Spec.Template, *o.Spec.Replicas
	}
}

// of returns the objects of a type.
func of[T runtime.Object](b *base) (all []T) {
	for _, o := range b.objects {
		if o, ok := o.(T); ok {
			all = append(all, o)
		}
	}
	return all
}

// A base has a namespace of its name, which no other has, so that any of them go
// together in an overlay; and what is in it fits.
func TestBases(t *testing.T) {
	seen := map[string]string{}
	for _, b := range bases(t) {
		if b.namespace.Name != b.name || b.namespace.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
			t.Errorf("%s: got namespace %s with %v", b.name, b.namespace.Name, b.namespace.Labels)
		}
		for _, o := range b.objects {
			m := o.(metav1.Object)
			id := fmt.Sprintf("%T %s/%s", o, m.GetNamespace(), m.GetName())
			if other := seen[id]; other != "" {
				t.Errorf("%s is in %s and in %s", id, other, b.name)
			}
			seen[id] = b.name
			if m.GetNamespace() != "" && m.GetNamespace() != b.name {
				t.Errorf("%s: %s is elsewhere", b.name, id)
			}
		}
		b.checkSelectors(t)
	}
}

func (b *base) checkSelectors(t *testing.T) {
	t.Helper()
	selectors := map[string]map[string]string{}
	for _, d := range of[*appsv1.Deployment](b) {
		selectors["Deployment"] = d.Spec.Selector.MatchLabels
	}
	for _, s := range of[*corev1.Service](b) {
		selectors["Service "+s.Name] = s.Spec.Selector
		for _, p := range s.Spec.Ports {
			if !slices.ContainsFunc(b.container().Ports, func(c corev1.ContainerPort) bool { return c.Name == p.TargetPort.StrVal }) {
				t.Errorf("%s: Service %s leads to port %s, which there is not", b.name, s.Name, &p.TargetPort)
			}
		}
	}
	for _, p := range of[*policyv1.PodDisruptionBudget](b) {
		selectors["PodDisruptionBudget"] = p.Spec.Selector.MatchLabels
	}
	for _, p := range of[*networkingv1.NetworkPolicy](b) {
		selectors["NetworkPolicy"] = p.Spec.PodSelector.MatchLabels
	}
	for _, s := range b.template.Spec.TopologySpreadConstraints {
		selectors["spread by "+s.TopologyKey] = s.LabelSelector.MatchLabels
	}
	for name, s := range selectors {
		if len(s) == 0 || !labels.SelectorFromSet(s).Matches(labels.Set(b.template.Labels)) {
			t.Errorf("%s: %s selects %v, and not the pods with %v", b.name, name, s, b.template.Labels)
		}
	}
	if selectors["NetworkPolicy"] == nil || b.replicas > 1 && (selectors["PodDisruptionBudget"] == nil || selectors["spread by kubernetes.io/hostname"] == nil) {
		t.Errorf("%s: got %v for %d replicas", b.name, selectors, b.replicas)
	}
}

func (b *base) container() *corev1.Container { return &b.template.Spec.Containers[0] }

// What the API server's pod security does not ask for.
func TestPods(t *testing.T) {
	for _, b := range bases(t) {
		spec, c := b.template.Spec, b.container()
		for what, ok := range map[string]bool{
			"one container":                      len(spec.Containers)+len(spec.InitContainers) == 1,
			"the account":                        spec.ServiceAccountName == b.account.Name,
			"a group":                            spec.SecurityContext.RunAsGroup != nil,
			"a read-only root":                   *c.SecurityContext.ReadOnlyRootFilesystem,
			"requests":                           !c.Resources.Requests.Cpu().IsZero() && !c.Resources.Requests.Memory().IsZero(),
			"a limit of memory, and none of CPU": !c.Resources.Limits.Memory().IsZero() && c.Resources.Limits.Cpu().IsZero(),
			"no variables of Services":           spec.EnableServiceLinks != nil && !*spec.EnableServiceLinks,
			"probes":                             c.LivenessProbe.HTTPGet.Path == "/healthz" && c.ReadinessProbe.HTTPGet.Path == "/readyz",
			"a name for an overlay's image":      c.Image == "causeway:dev" || b.name == "tunnel-agent" && c.Image == "causeway-agent:dev",
			"the image's own command":            len(c.Command) == 0,
		} {
			if !ok {
				t.Errorf("%s: the pods lack %s", b.name, what)
			}
		}
		for _, v := range spec.Volumes {
			if v.Secret == nil {
				t.Errorf("%s: volume %s is no Secret", b.name, v.Name)
			}
		}
	}
}

// A pod has a token if there are rights that it stands for, and only then.
func TestTokens(t *testing.T) {
	for _, b := range bases(t) {
		bound := false
		for _, r := range of[*rbacv1.RoleBinding](b) {
			bound = bound || r.Subjects[0].Name == b.account.Name && r.Subjects[0].Namespace == b.name
		}
		if token := b.template.Spec.AutomountServiceAccountToken; token == nil || *token != bound {
			t.Errorf("%s: a token is mounted: %v, it has rights: %t", b.name, token, bound)
		}
		if *b.account.AutomountServiceAccountToken {
			t.Errorf("%s: the account gives its token to every pod", b.name)
		}
	}
}

var tooMuch = []string{"*", "escalate", "bind", "impersonate"}

// Rights are what they say: no verb of all, and nothing that makes more rights.
func TestRoles(t *testing.T) {
	for _, b := range bases(t) {
		var rules []rbacv1.PolicyRule
		for _, r := range of[*rbacv1.Role](b) {
			rules = append(rules, r.Rules...)
		}
		for _, r := range of[*rbacv1.ClusterRole](b) {
			rules = append(rules, r.Rules...)
		}
		for _, r := range rules {
			for _, word := range slices.Concat(r.Verbs, r.APIGroups) {
				if slices.Contains(tooMuch, word) {
					t.Errorf("%s: got %s in %v", b.name, word, r)
				}
			}
		}
	}
}

// A component that gives rights gives them to the account of a base, by a role of its own,
// and may have a second one for the base's namespace, and a policy that narrows them;
// what it patches, the test of the base's program reads.
func TestComponents(t *testing.T) {
	dirs, err := filepath.Glob("components/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("got %q, %v", dirs, err)
	}
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "manifest.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		b := &base{name: dir}
		b.decode(t, text)
		roles, bindings := of[*rbacv1.ClusterRole](b), of[*rbacv1.ClusterRoleBinding](b)
		if len(roles)+len(bindings) == 0 {
			continue // it gives no rights
		}
		policies, policyBindings := of[*admissionregistrationv1.ValidatingAdmissionPolicy](b), of[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](b)
		local, localBindings := of[*rbacv1.Role](b), of[*rbacv1.RoleBinding](b)
		if len(roles) != 1 || len(bindings) != 1 || len(policies) != len(policyBindings) || len(local) != len(localBindings) ||
			len(b.objects) != 2+2*len(policies)+2*len(local) {
			t.Fatalf("%s: got %v", dir, b.objects)
		}
		role, binding := roles[0], bindings[0]
		for n, r := range local {
			if localBindings[n].RoleRef.Name != r.Name || !slices.Equal(localBindings[n].Subjects, binding.Subjects) || r.Namespace != binding.Subjects[0].Namespace {
				t.Errorf("%s: got %+v for %s/%s", dir, localBindings[n], r.Namespace, r.Name)
			}
			role.Rules = append(role.Rules, r.Rules...)
		}
		if binding.RoleRef.Kind != "ClusterRole" || binding.RoleRef.Name != role.Name || len(binding.Subjects) != 1 {
			t.Errorf("%s: got %+v, want the role %s for one account", dir, binding, role.Name)
		}
		if !slices.ContainsFunc(bases(t), func(base *base) bool {
			return base.account.Name == binding.Subjects[0].Name && base.account.Namespace == binding.Subjects[0].Namespace
		}) {
			t.Errorf("%s: no base has the account %+v", dir, binding.Subjects[0])
		}
		for _, r := range role.Rules {
			for _, word := range slices.Concat(r.Verbs, r.APIGroups, r.Resources) {
				if slices.Contains(tooMuch, word) {
					t.Errorf("%s: got %s in %v", dir, word, r)
				}
			}
		}
	}
}

func TestAgent(t *testing.T) {
	text, err := os.ReadFile("tunnel-agent/manifest.yaml")
	if err != nil || deploy.Agent() != string(text) {
		t.Errorf("got another manifest than the file's, %v", err)
	}
}
