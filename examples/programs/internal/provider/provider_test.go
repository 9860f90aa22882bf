package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/internal/test/clitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		res, err := http.Get("http://" + address + page)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("got %d of %s, want %d", res.StatusCode, page, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
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
		res, err := http.Get("http://" + address + page)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("got %d of %s, want %d", res.StatusCode, page, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
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
	text, err := os.ReadFile("../../../deploy/kubeconfig-provider/manifest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]func() any{
		"Namespace":           func() any { return &corev1.Namespace{} },
		"ServiceAccount":      func() any { return &corev1.ServiceAccount{} },
		"ClusterRole":         func() any { return &rbacv1.ClusterRole{} },
		"ClusterRoleBinding":  func() any { return &rbacv1.ClusterRoleBinding{} },
		"Role":                func() any { return &rbacv1.Role{} },
		"RoleBinding":         func() any { return &rbacv1.RoleBinding{} },
		"Deployment":          func() any { return &appsv1.Deployment{} },
		"PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} },
		"NetworkPolicy":       func() any { return &networkingv1.NetworkPolicy{} },
	}
	var deployment *appsv1.Deployment
	var lease []string
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var head struct{ Kind string }
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatal(err)
		}
		if kinds[head.Kind] == nil {
			t.Fatalf("got a second or unknown %q", head.Kind)
		}
		object := kinds[head.Kind]()
		delete(kinds, head.Kind)
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
		switch o := object.(type) {
		case *appsv1.Deployment:
			deployment = o
		case *rbacv1.Role:
			lease = o.Rules[1].ResourceNames
		}
	}
	if len(kinds) > 0 {
		t.Fatalf("the manifest lacks %v", len(kinds))
	}
	f, cmd := new(flags), new(cobra.Command)
	f.add(cmd)
	c := deployment.Spec.Template.Spec.Containers[0]
	if err := cmd.ParseFlags(c.Args[1:]); err != nil {
		t.Fatal(err)
	}
	if e := c.Env[0]; f.lease != "$("+e.Name+")" || e.ValueFrom.FieldRef.FieldPath != "metadata.namespace" || len(lease) != 1 || lease[0] != "kubeconfig-provider-"+f.config.Name {
		t.Errorf("got a Lease in %s and rights on %q, want them to fit", f.lease, lease)
	}
}
