package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// A birthPage is docs/private-cluster.md: the files that it shows by their names, and
// the commands in the order in which they stand there.
type birthPage struct {
	files    map[string]string
	commands []string
}

var pageFile = regexp.MustCompile("(?ms)^```yaml\n# (\\S+)\n(.*?)^```$")

func readBirthPage(t *testing.T) birthPage {
	t.Helper()
	text, err := os.ReadFile("../../docs/private-cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	page := birthPage{files: map[string]string{}}
	for _, m := range pageFile.FindAllStringSubmatch(string(text), -1) {
		page.files[m[1]] = m[2]
	}
	for line := range strings.Lines(pageFile.ReplaceAllString(string(text), "")) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			page.commands = append(page.commands, strings.TrimSpace(command))
		}
	}
	return page
}

// command returns the page's only command that begins so.
func (b birthPage) command(t *testing.T, begin string) (found string) {
	t.Helper()
	for _, c := range b.commands {
		if strings.HasPrefix(c, begin) && found == "" {
			found = c
		} else if strings.HasPrefix(c, begin) {
			t.Fatalf("the page has two commands %s", begin)
		}
	}
	if found == "" {
		t.Fatalf("the page has no command %s", begin)
	}
	return found
}

// shell is a command of the page in the directory of its files, for the administrator of
// the management cluster.
func (p *privateBed) shell(command string) bed.Command {
	c := p.named(bed.Command{Argv: []string{"/bin/sh", "-euc", "cd " + p.path("page") + "; " + command}})
	c.Env = []string{"PATH=" + os.Getenv(bed.BinEnv) + ":" + os.Getenv("PATH"), "KUBECONFIG=" + p.path("admin")}
	return c
}

// runPage runs the page's only command that begins so.
func (p *privateBed) runPage(t *testing.T, begin string) string {
	t.Helper()
	out, err := p.Node.Run(t.Context(), p.shell(p.page.command(t, begin)))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// writePage writes the page's files, with the addresses of the bed.
func (p *privateBed) writePage(t *testing.T) {
	t.Helper()
	host, _ := p.site.Endpoint()
	etcd := fmt.Sprintf(externalEtcd, p.site.EtcdURL())
	inBed := strings.NewReplacer("host: 10.20.0.10", "host: "+host, "  kubeadmConfigSpec:\n", "  kubeadmConfigSpec:\n"+etcd, "tunnel.example.com:443", tunnelFront)
	for name, text := range p.page.files {
		writeFile(t, p.path("page", name), inBed.Replace(text))
	}
	root, err := filepath.Abs("../..")
	if err == nil {
		err = os.Symlink(root, p.path("page", "causeway"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// applyManagement runs the page's commands for the management cluster, in which
// clusterctl has made namespaces.
func (p *privateBed) applyManagement(t *testing.T) {
	t.Helper()
	writeFile(t, p.path("page", "proxy.url"), p.site.Proxy.URL().String()+"\n")
	for _, name := range []string{"capi-system", "capi-kubeadm-bootstrap-system", "capi-kubeadm-control-plane-system"} {
		p.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	p.runPage(t, "kubectl apply --server-side ")
	p.runPage(t, "kubectl -n tunnel-server create secret ")
	p.runPage(t, "kubectl label namespace ")
	const overlay = "management"
	p.applyDir(overlay, p.path("page", overlay))
	for _, base := range []string{serverBase, providerBase} {
		p.objects[base] = slices.DeleteFunc(slices.Clone(p.objects[overlay]), func(o *unstructured.Unstructured) bool { return o.GetNamespace() != base })
	}
}

// externalEtcd is added to what the page shows of a control plane: a machine of the bed
// has no kubelet that could run etcd.
const externalEtcd = `    clusterConfiguration:
      etcd:
        external:
          endpoints: [%s]
          caFile: /etc/kubernetes/pki/etcd/ca.crt
          certFile: /etc/kubernetes/pki/apiserver-etcd-client.crt
          keyFile: /etc/kubernetes/pki/apiserver-etcd-client.key
`

// checkPage wants the page to have what the library says.
func (p *privateBed) checkPage(t *testing.T) {
	t.Helper()
	text, err := yaml.Marshal(provider.AgentFiles(privateName))
	if err != nil {
		t.Fatal(err)
	}
	var want bootstrapv1.KubeadmConfigSpec
	if err := yaml.UnmarshalStrict(text, &want); err != nil {
		t.Fatal(err)
	}
	got := p.kubeadmSpec(t)
	if !reflect.DeepEqual(got.Files, want.Files) || !slices.Equal(got.PreKubeadmCommands, want.PreKubeadmCommands) {
		t.Errorf("the page has %+v and %q, want %+v and %q", got.Files, got.PreKubeadmCommands, want.Files, want.PreKubeadmCommands)
	}
	var patch clusterv1.ClusterClassPatch
	if err := yaml.UnmarshalStrict([]byte(p.page.files["patch.yaml"]), &patch); err != nil {
		t.Fatal(err)
	}
	patches := patch.Definitions[0].JSONPatches
	files := strings.ReplaceAll(patches[0].ValueFrom.Template, "{{ .builtin.cluster.name }}", privateName)
	got = bootstrapv1.KubeadmConfigSpec{}
	if err := errors.Join(yaml.UnmarshalStrict([]byte(files), &got.Files), json.Unmarshal(patches[1].Value.Raw, &got.PreKubeadmCommands)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Files, want.Files) || !slices.Equal(got.PreKubeadmCommands, want.PreKubeadmCommands) {
		t.Errorf("the page's patch has %+v and %q, want %+v and %q", got.Files, got.PreKubeadmCommands, want.Files, want.PreKubeadmCommands)
	}
}
