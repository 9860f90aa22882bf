package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
)

// bases are the directories of examples/deploy.
var bases = []string{"kubeconfig-provider", "proxy-injector", "proxy-propagator", "tunnel-agent", "tunnel-server"}

// A deploying is a cluster in which all bases are deployed, and the directory
// of their programs.
type deploying struct {
	*bed.Cluster
	t     *testing.T
	bed   *bed.Bed
	dir   string
	admin client.WithWatch
	audit string
	pods  int

	objects map[string][]*unstructured.Unstructured // as kustomize has them, by base
}

// TestDeploy: every base is taken by a kube-apiserver as it is, its programs do
// their work with its flags, rights and security, and no right is left over.
func TestDeploy(t *testing.T) {
	t.Parallel() // waits much
	d := startDeploying(t, "deploy")
	for _, base := range bases {
		d.apply(base)
	}
	t.Run("rights", d.testRights)
	t.Run("security", d.testSecurity)
	t.Run("tunnel", d.testTunnel)
	t.Run("provider", d.testProvider)
	t.Run("injector", d.testInjector)
	t.Run("propagator", d.testPropagator)
	t.Run("audit", d.testAudit)
	t.Run("agent", d.testAgent)
}

// startDeploying starts the cluster, whose name no other test has, and builds the programs.
func startDeploying(t *testing.T, name string) *deploying {
	t.Helper()
	d := startEmpty(t, name)
	d.build()
	return d
}

// startEmpty starts the cluster without programs.
func startEmpty(t *testing.T, name string) *deploying {
	t.Helper()
	d := &deploying{t: t, bed: sharedBed(t), dir: t.TempDir(), objects: map[string][]*unstructured.Unstructured{}}
	// A container's user has to get through.
	for dir := d.dir; dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.audit = filepath.Join(d.dir, "audit.log")
	policy := filepath.Join(d.dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.Cluster, err = d.bed.StartCluster(t.Context(), name, "--audit-policy-file="+policy, "--audit-log-path="+d.audit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme, err := capiScheme()
	if err != nil {
		t.Fatal(err)
	}
	if d.admin, err = client.NewWithWatch(d.Kube.Config(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if err := bed.InstallClusterAPI(t.Context(), d.Kube); err != nil {
		t.Fatal(err)
	}
	config := d.kubeconfig(kubeconfig.Credentials{CAKey: d.Kube.CA.KeyPEM()}, d.Kube.Host(), d.Kube.Port())
	if err := os.WriteFile(d.path("admin"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *deploying) path(names ...string) string {
	return filepath.Join(append([]string{d.dir}, names...)...)
}

func (d *deploying) kubeconfig(credentials kubeconfig.Credentials, host string, port int32) []byte {
	d.t.Helper()
	config, err := kubeconfig.Spec{Name: "deploy", CA: d.Kube.CA.CertPEM(), Credentials: credentials, TLSServerName: "kubernetes.default.svc",
		Endpoint: kubeconfig.Endpoint{Host: host, Port: port}}.Build()
	if err != nil {
		d.t.Fatal(err)
	}
	secret, err := kubeconfig.Secret("deploy", "default", config, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return secret.Data[kubeconfig.SecretKey]
}

// buildLine is the Dockerfile's.
var buildLine = regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*) -o /out/ (.*)$`)

// build runs the Dockerfile's line.
func (d *deploying) build() {
	d.t.Helper()
	text, err := os.ReadFile("../../examples/deploy/Dockerfile")
	if err != nil {
		d.t.Fatal(err)
	}
	found := buildLine.FindStringSubmatch(string(text))
	if found == nil {
		d.t.Fatal("the Dockerfile has another line that builds")
	}
	cmd := exec.CommandContext(d.t.Context(), "sh", "-c", found[1]+" -o '"+d.dir+"/' "+found[2])
	cmd.Dir = programsModule
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("%v\n%s", err, out)
	}
}

// kubectl runs as the administrator, beside the API server.
func (d *deploying) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	c := d.bed.Kubectl(d.path("admin"), args...)
	c.Stdin = strings.NewReader(stdin)
	out, err := d.Node.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply applies a base.
func (d *deploying) apply(base string) {
	d.t.Helper()
	dir, err := filepath.Abs("../../examples/deploy/" + base)
	if err != nil {
		d.t.Fatal(err)
	}
	d.applyDir(base, dir)
}

// applyDir has kubectl apply what is in a directory, in place of what was of the
// base, and reads back what is there then: all that it says.
func (d *deploying) applyDir(base, dir string) {
	d.t.Helper()
	d.objects[base] = nil
	built := d.kubectl(d.t, "", "kustomize", dir)
	d.kubectl(d.t, "", "apply", "--server-side", "--validate=strict", "-k", dir)
	for _, document := range bytes.Split([]byte(built), []byte("\n---\n")) {
		want, got := new(unstructured.Unstructured), new(unstructured.Unstructured)
		text, err := yaml.YAMLToJSON(document)
		if err == nil {
			err = want.UnmarshalJSON(text)
		}
		if err != nil {
			d.t.Fatal(err)
		}
		got.SetGroupVersionKind(want.GroupVersionKind())
		if err := d.admin.Get(d.t.Context(), client.ObjectKeyFromObject(want), got); err != nil {
			d.t.Fatal(err)
		}
		if lost := missing(want.Object, got.Object, want.GetKind()); lost != "" {
			d.t.Errorf("%s: %s of %s", base, lost, want.GetName())
		}
		d.objects[base] = append(d.objects[base], want)
	}
	if len(d.objects[base]) < 4 {
		d.t.Errorf("%s: got %d objects", base, len(d.objects[base]))
	}
}

// missing says what of want is not in got, or "".
func missing(want, got any, path string) string {
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for key, value := range want {
			if lost := missing(value, got[key], path+"."+key); lost != "" {
				return lost
			}
		}
		return ""
	case []any:
		got, _ := got.([]any)
		if len(got) != len(want) {
			return fmt.Sprintf("%s: got %d entries, want %d", path, len(got), len(want))
		}
		for n := range want {
			if lost := missing(want[n], got[n], fmt.Sprintf("%s[%d]", path, n)); lost != "" {
				return lost
			}
		}
		return ""
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Sprintf("%s: got %v, want %v", path, got, want)
	}
	return ""
}

// template is the pod template of a base's workload, as it was applied.
func (d *deploying) template(t *testing.T, base string) *corev1.PodTemplateSpec {
	t.Helper()
	for _, o := range d.objects[base] {
		if o.GetKind() != "Deployment" {
			continue
		}
		got := new(unstructured.Unstructured)
		got.SetGroupVersionKind(o.GroupVersionKind())
		if err := d.admin.Get(t.Context(), client.ObjectKeyFromObject(o), got); err != nil {
			t.Fatal(err)
		}
		text, _, err := unstructured.NestedMap(got.Object, "spec", "template")
		if err != nil {
			t.Fatal(err)
		}
		template := new(corev1.PodTemplateSpec)
		if err := fromUnstructured(text, template); err != nil {
			t.Fatal(err)
		}
		template.Namespace = o.GetNamespace()
		return template
	}
	t.Fatalf("%s has no pods", base)
	panic("not reached")
}

// testSecurity: the API server takes a pod of each template in its namespace, and
// in none of them one that asks for more.
func (d *deploying) testSecurity(t *testing.T) {
	for _, base := range bases {
		if err := d.admin.Create(t.Context(), podOf(d.template(t, base), "bare"), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", base, err)
		}
		pod := podOf(d.template(t, base), "bold")
		pod.Spec.HostNetwork = true
		if err := d.admin.Create(t.Context(), pod, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "PodSecurity") {
			t.Errorf("%s: got %v of a pod on the host's network, want that it is forbidden", base, err)
		}
	}
}

// service does what kube-proxy does: it leads a Service's address to a pod's.
func (d *deploying) service(t *testing.T, namespace, name string, target func(port string) string) string {
	t.Helper()
	s := &corev1.Service{}
	if err := d.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
		t.Fatal(err)
	}
	port := s.Spec.Ports[0]
	address := net.JoinHostPort(s.Spec.ClusterIP, fmt.Sprint(port.Port))
	if err := d.AddService(t.Context(), address, func() string { return target(port.TargetPort.String()) }); err != nil {
		t.Fatal(err)
	}
	return address
}

func (d *deploying) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := d.admin.Create(t.Context(), object); err != nil {
		t.Fatalf("%T %s: %v", object, object.GetName(), err)
	}
}

func (d *deploying) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return s, d.admin.Get(ctx, client.ObjectKeyFromObject(s), s)
}
