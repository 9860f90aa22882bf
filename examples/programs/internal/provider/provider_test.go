package provider

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/internal/test/clitest"
)

func TestMain(m *testing.M) {
	// controller-runtime's wrapper of a watch keeps this if the watch ends while an event comes.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"))
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	_, err := command.Execute(ctx, Command(), args, stdin, stdout, stderr)
	return err
}

// TestRun before an API server without Cluster API: it is alive, says what is
// missing, and ends when it is told to.
func TestRun(t *testing.T) {
	server := apitest.New(t)
	server.Serve("cluster.x-k8s.io", nil)
	path := filepath.Join(t.TempDir(), "management.conf")
	config := clientcmdapi.NewConfig()
	config.Clusters["m"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["m"] = &clientcmdapi.Context{Cluster: "m"}
	config.CurrentContext = "m"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	p := clitest.Start(t, run, nil, "--kubeconfig", path, "--health", "127.0.0.1:0")
	address := p.Await(`for=health address=(\S+)`)
	p.Await(`clusters.cluster.x-k8s.io`)
	for page, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200} {
		if got, _ := clitest.Get(t, "http://"+address+page); got != want {
			t.Errorf("got %d of %s, want %d", got, page, want)
		}
	}
	if err := p.Stop(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

// An API server that can't be reached is waited for: the program is alive, and not ready.
func TestAPIServerAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.Contexts["c"] = &clientcmdapi.Cluster{Server: "http://127.0.0.1:1"}, &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	p := clitest.Start(t, run, nil, "--kubeconfig", path, "--health", "127.0.0.1:0")
	address := p.Await(`for=health address=(\S+)`)
	p.Await(`msg=waiting error=.*connection refused`)
	for page, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		if got, _ := clitest.Get(t, "http://"+address+page); got != want {
			t.Errorf("got %d of %s, want %d", got, page, want)
		}
	}
	if err := p.Stop(); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"extra"}, {"--mode", "nonsense"}, {"--proxy-url", "http://user:canary@proxy:1"}, {"--route-secret", "noslash"},
		{"--proxy-url", "http://proxy:1", "--gateway", "http://gateway:1"},
	} {
		err := run(t.Context(), args, nil, io.Discard, io.Discard)
		var mistake cli.UsageError
		if !errors.As(err, &mistake) || strings.Contains(err.Error(), "canary") {
			t.Errorf("got %v of %q, want a UsageError", err, args)
		}
	}
}

// TestManifest parses strictly, and its arguments are flags.
func TestManifest(t *testing.T) {
	var deployment appsv1.Deployment
	var role rbacv1.Role
	clitest.ReadManifest(t, "../../../deploy/kubeconfig-provider/manifest.yaml", map[string]any{
		"Namespace": new(corev1.Namespace), "ServiceAccount": new(corev1.ServiceAccount),
		"ClusterRole": new(rbacv1.ClusterRole), "ClusterRoleBinding": new(rbacv1.ClusterRoleBinding),
		"Role": &role, "RoleBinding": new(rbacv1.RoleBinding), "Deployment": &deployment,
		"PodDisruptionBudget": new(policyv1.PodDisruptionBudget), "NetworkPolicy": new(networkingv1.NetworkPolicy),
		"ValidatingAdmissionPolicy": new(admissionv1.ValidatingAdmissionPolicy), "ValidatingAdmissionPolicyBinding": new(admissionv1.ValidatingAdmissionPolicyBinding),
		"ValidatingAdmissionPolicy/kubeconfig-provider-status": new(admissionv1.ValidatingAdmissionPolicy), "ValidatingAdmissionPolicyBinding/kubeconfig-provider-status": new(admissionv1.ValidatingAdmissionPolicyBinding),
	})
	lease := role.Rules[1].ResourceNames
	f, cmd := new(flags), new(cobra.Command)
	f.add(cmd)
	c := deployment.Spec.Template.Spec.Containers[0]
	if err := cmd.ParseFlags(c.Args[1:]); err != nil {
		t.Fatal(err)
	}
	if e := c.Env[0]; f.manager.LeaseNamespace != "$("+e.Name+")" || e.ValueFrom.FieldRef.FieldPath != "metadata.namespace" || len(lease) != 1 || lease[0] != "kubeconfig-provider-"+f.config.Name {
		t.Errorf("got a Lease in %s and rights on %q, want them to fit", f.manager.LeaseNamespace, lease)
	}
}
