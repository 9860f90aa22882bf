package propagator

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/causewayproject/causeway/internal/test/clitest"
)

// manifest is what is in the file, one of each.
type manifest struct {
	namespace   corev1.Namespace
	account     corev1.ServiceAccount
	clusterRole rbacv1.ClusterRole
	everywhere  rbacv1.ClusterRoleBinding
	role        rbacv1.Role
	binding     rbacv1.RoleBinding
	deployment  appsv1.Deployment
}

func readManifest(t *testing.T) *manifest {
	t.Helper()
	m := new(manifest)
	clitest.ReadManifest(t, "../../../deploy/proxy-propagator/manifest.yaml", map[string]any{
		"Namespace": &m.namespace, "ServiceAccount": &m.account, "ClusterRole": &m.clusterRole, "ClusterRoleBinding": &m.everywhere,
		"Role": &m.role, "RoleBinding": &m.binding, "Deployment": &m.deployment,
		"PodDisruptionBudget": new(policyv1.PodDisruptionBudget), "NetworkPolicy": new(networkingv1.NetworkPolicy),
		"ValidatingAdmissionPolicy": new(admissionv1.ValidatingAdmissionPolicy), "ValidatingAdmissionPolicyBinding": new(admissionv1.ValidatingAdmissionPolicyBinding),
	})
	return m
}

// TestManifest parses strictly, and its parts fit each other and the program.
func TestManifest(t *testing.T) {
	m := readManifest(t)
	f := new(flags)
	cmd := new(cobra.Command)
	f.add(cmd)
	c := m.deployment.Spec.Template.Spec.Containers[0]
	args := strings.ReplaceAll(strings.Join(c.Args[1:], "\n"), "$("+c.Env[0].Name+")", m.namespace.Name)
	if err := cmd.ParseFlags(strings.Split(args, "\n")); err != nil {
		t.Fatal(err)
	}
	if path := c.Env[0].ValueFrom.FieldRef.FieldPath; path != "metadata.namespace" {
		t.Errorf("got %s in %s, want its namespace", path, c.Env[0].Name)
	}
	r, err := f.reconciler()
	if err != nil {
		t.Fatal(err)
	}
	if p := f.program(r); p.LeaseNamespace != m.role.Namespace || !slices.Equal(m.role.Rules[1].ResourceNames, []string{p.LeaseName}) {
		t.Errorf("got the Lease %s/%s and rights on %q, want them to fit", p.LeaseNamespace, p.LeaseName, m.role.Rules[1].ResourceNames)
	}
	if got, want := r.Config.Installation, m.namespace.Name+"/installation-proxy"; got != want {
		t.Errorf("got the installation's Secret %s, want %s", got, want)
	}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: m.account.Name, Namespace: m.account.Namespace}}
	if !slices.Equal(m.everywhere.Subjects, subjects) || !slices.Equal(m.binding.Subjects, subjects) || m.deployment.Spec.Template.Spec.ServiceAccountName != m.account.Name {
		t.Errorf("got the account %s, and others bound or used", m.account.Name)
	}
	if m.everywhere.RoleRef.Name != m.clusterRole.Name || m.binding.RoleRef.Name != m.role.Name {
		t.Error("a binding refers to another role")
	}
	for _, rule := range m.clusterRole.Rules {
		for _, verb := range []string{"delete", "deletecollection", "patch", "*"} {
			if verb == "patch" && slices.Equal(rule.Resources, []string{"events"}) {
				continue // how client-go's recorder repeats an Event
			}
			if slices.Contains(rule.Verbs, verb) {
				t.Errorf("got %s on %v, which nothing needs", verb, rule.Resources)
			}
		}
	}
}
