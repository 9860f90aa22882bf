package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/tunnel"
)

const (
	agentState      = "tunnel-agent-state"
	agentInvitation = "tunnel-agent-invitation"
)

// agentBed has servers of one authority beside the API server, for the agents of
// manifests that the program prints.
type agentBed struct {
	d         *deploying
	state     string // the authority's directory
	authority *tunnel.Authority
	server    *tunnel.Server // that all but renewing agents are at
	address   string         // its
}

// testAgent: an agent whose manifest is applied as it is printed needs no volume.
func (d *deploying) testAgent(t *testing.T) {
	b := d.newAgentBed(t)
	t.Run("elsewhere", b.testElsewhere)
	t.Run("renewal", b.testRenewal)
	t.Run("trouble", b.testTrouble)
	t.Run("host network", b.testHostNetwork)
	t.Run("flags", b.testFlags)
}

func (d *deploying) newAgentBed(t *testing.T) *agentBed {
	t.Helper()
	authority, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	certs, key, err := authority.PEM()
	if err != nil {
		t.Fatal(err)
	}
	b := &agentBed{d: d, state: t.TempDir(), authority: authority}
	if err := os.WriteFile(filepath.Join(b.state, "authority.pem"), append(certs, key...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(b.state, 0o700); err != nil {
		t.Fatal(err)
	}
	b.server, b.address = b.serve(t, 0)
	return b
}

// serve starts a server whose certificates live for that long, until the test ends.
func (b *agentBed) serve(t *testing.T, life time.Duration) (*tunnel.Server, string) {
	t.Helper()
	l, err := b.d.Node.Listen(net.JoinHostPort(b.d.Kube.Host(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &tunnel.Server{Authority: b.authority, Store: tunnel.DirStore{Dir: b.state}, CertificateLife: life, Grace: -1}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return server, l.Addr().String()
}

// enroll returns what the program prints for an agent in a namespace, of the cluster of
// the same name.
func (b *agentBed) enroll(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	argv := append([]string{b.d.path("causeway"), "enroll", "agents/" + namespace, "--state", b.state, "--format", "manifest", "--namespace", namespace}, args...)
	out, err := b.d.Node.Run(t.Context(), bed.Command{Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply has kubectl apply a manifest, which is the base of the name from then on.
func (b *agentBed) apply(t *testing.T, name, manifest string, args ...string) {
	t.Helper()
	b.d.kubectl(t, manifest, append([]string{"apply", "--validate=strict", "-f", "-"}, args...)...)
	b.d.objects[name] = documents(t, manifest)
}

func documents(t *testing.T, manifest string) (objects []*unstructured.Unstructured) {
	t.Helper()
	for text := range strings.SplitSeq(manifest, "\n---\n") {
		o := new(unstructured.Unstructured)
		if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	return objects
}

// saved returns the agent's credentials in its Secret.
func (b *agentBed) saved(ctx context.Context, namespace string) string {
	s, err := b.d.secret(ctx, namespace, agentState)
	if err != nil {
		return err.Error()
	}
	return string(s.Data["credentials.pem"])
}

// says waits until a pod's program has written all of the texts.
func (p *pod) says(t *testing.T, texts ...string) string {
	t.Helper()
	for _, text := range texts {
		eventually(t, fmt.Sprintf("%s to say %q", p.name, text), func(context.Context) error {
			if err := p.running.Ended(); err != nil {
				return bed.Stop(err)
			}
			if got := p.running.Stderr(); !strings.Contains(got, text) {
				return fmt.Errorf("it says\n%s", got)
			}
			return nil
		})
	}
	return p.running.Stderr()
}

// agentName waits until a pod's agent is connected.
func (p *pod) agentName(t *testing.T) string {
	t.Helper()
	found := connectedAs.FindStringSubmatch(p.says(t, "msg=connected"))
	if found == nil {
		t.Fatal("the agent does not say who it is")
	}
	return found[1]
}

// A pod is killed, and another one starts on another host, with no volume: it is the
// same agent, whoever applies the manifest again meanwhile, and however.
func (b *agentBed) testElsewhere(t *testing.T) {
	const namespace = "elsewhere"
	d := b.d
	manifest := b.enroll(t, namespace, "--server", b.address)
	b.apply(t, namespace, manifest)
	first := d.start(t, namespace)
	name := first.agentName(t)
	first.running.Stop()
	saved := b.saved(t.Context(), namespace)
	if !strings.Contains(saved, "PRIVATE KEY") {
		t.Fatalf("got %q in the Secret", saved)
	}
	for _, args := range [][]string{nil, {"--server-side"}, {"--server-side", "--force-conflicts"}, nil} {
		b.apply(t, namespace, manifest, args...)
		if got := b.saved(t.Context(), namespace); got != saved {
			t.Errorf("kubectl apply %q: the agent's credentials are gone", args)
		}
	}
	dir := t.TempDir()
	for file, text := range map[string]string{"manifest.yaml": manifest, "kustomization.yaml": "resources: [manifest.yaml]\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.kubectl(t, "", "apply", "-k", dir)
	second := d.start(t, namespace)
	if got := second.agentName(t); got != name || strings.Contains(second.running.Stderr(), "msg=enrolled") {
		t.Errorf("got agent %s after %s, and\n%s", got, name, second.running.Stderr())
	}
	second.ready(t)
	if first.ip == second.ip || b.saved(t.Context(), namespace) != saved {
		t.Errorf("the second agent is at %s, the first one was at %s", second.ip, first.ip)
	}
	b.testForbidden(t, namespace)
}

// testForbidden: the agent's token is for its Secret, to get and to update.
func (b *agentBed) testForbidden(t *testing.T, namespace string) {
	as := "--as=system:serviceaccount:" + namespace + ":tunnel-agent"
	for _, args := range []string{
		"get secret " + agentInvitation, "get secrets", "delete secret " + agentState, "create secret generic other",
		"get secret " + agentState + " -n default", "get pods", "patch secret " + agentState + " -p {}", "get secret " + agentInvitation + " --watch",
	} {
		argv := append(strings.Fields(args), as)
		if !strings.Contains(args, " -n ") {
			argv = append(argv, "-n", namespace)
		}
		if out, err := b.d.Node.Run(t.Context(), b.d.bed.Kubectl(b.d.path("admin"), argv...)); err == nil || !strings.Contains(err.Error(), "is forbidden: User") {
			t.Errorf("%s: got %q, %v, want it forbidden", args, out, err)
		}
	}
	if got := b.d.kubectl(t, "", "get", "secret", agentState, "-n", namespace, as, "-o", "name"); got != "secret/"+agentState+"\n" {
		t.Errorf("got %q", got)
	}
}

// An agentProxy is the only way to a tunnel's server. It takes one password.
type agentProxy struct {
	*proxytest.Server
	to func(ctx context.Context, network, address string) (net.Conn, error)

	mu       sync.Mutex // guards the fields below
	password string
	conns    []net.Conn
}

// hiddenServer is a name that only an agentProxy knows.
const hiddenServer = "tunnel.example.com:9443"

func (b *agentBed) startProxy(t *testing.T, server, password string) *agentProxy {
	t.Helper()
	l, err := b.d.Node.Listen(net.JoinHostPort(b.d.Kube.Host(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	p := &agentProxy{password: password}
	p.to = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != hiddenServer {
			return nil, fmt.Errorf("%s is not for the proxy", address)
		}
		return b.d.Node.DialContext(ctx, network, server)
	}
	p.Server = proxytest.Serve(l, func(ctx context.Context, conn net.Conn) {
		p.mu.Lock()
		p.conns = append(p.conns, conn)
		handler := &proxytest.HTTP{Username: "agent", Password: p.password, Dial: p.to}
		p.mu.Unlock()
		handler.Handle(ctx, conn)
	})
	t.Cleanup(p.Close)
	return p
}

// setPassword replaces the password, and ends the connections.
func (p *agentProxy) setPassword(password string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.password = password
	for _, conn := range p.conns {
		conn.Close()
	}
	p.conns = nil
}

// A renewal is written back: a pod that starts after it, without the invitation's token,
// is connected. The way to the server is a proxy with a password, which is in the
// invitation and changes under the agent; the API server is reached directly.
func (b *agentBed) testRenewal(t *testing.T) {
	const namespace = "renewal"
	d := b.d
	_, address := b.serve(t, 20*time.Second)
	proxy := b.startProxy(t, address, "one")
	url := func(password string) string { return "http://agent:" + password + "@" + proxy.Addr() }
	b.apply(t, namespace, b.enroll(t, namespace, "--server", hiddenServer, "--proxy", url("one")))
	first := d.start(t, namespace)
	name := first.agentName(t)
	enrolled := b.saved(t.Context(), namespace)

	// The kubelet replaces the file when the Secret changes.
	const invitation = "/etc/tunnel-agent/invitation.env"
	text, err := os.ReadFile(filepath.Join(first.container.Root, invitation))
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), url("one"), url("t%24wo"), 1)
	first.write(t, invitation, []byte(changed), 0o440, int(first.container.Group))
	d.kubectl(t, fmt.Sprintf(`{"data":{"invitation.env":%q}}`, base64.StdEncoding.EncodeToString([]byte(changed))),
		"patch", "secret", agentInvitation, "-n", namespace, "--type=merge", "--patch-file=/dev/stdin")
	proxy.setPassword("t$wo")
	eventually(t, "a connection with the new password", func(context.Context) error {
		if log := first.running.Stderr(); strings.Count(log, "msg=connected") < 2 {
			return fmt.Errorf("it says\n%s", log)
		}
		return nil
	})
	first.says(t, "msg=renewed")
	first.running.Stop()
	if b.saved(t.Context(), namespace) == enrolled {
		t.Error("the Secret has the first certificate")
	}
	second := d.start(t, namespace)
	if got := second.agentName(t); got != name || strings.Contains(second.running.Stderr(), "msg=enrolled") {
		t.Errorf("got agent %s after %s, and\n%s", got, name, second.running.Stderr())
	}
	for _, p := range []*pod{first, second} {
		if log := p.running.Stderr(); strings.Contains(log, "one@") || strings.Contains(log, "wo@") || strings.Contains(log, "is not for the proxy") {
			t.Errorf("got the log\n%s", log)
		}
	}
	second.running.Stop()
}

// What can be wrong at the start passes without a restart, once it is mended.
func (b *agentBed) testTrouble(t *testing.T) {
	const namespace = "trouble"
	d := b.d
	manifest := b.enroll(t, namespace, "--server", b.address)
	b.apply(t, namespace, manifest)

	p := d.newPod(t, namespace)
	route := func(verb string) {
		t.Helper()
		if _, err := p.host.Run(t.Context(), bed.Command{Argv: []string{"ip", "route", verb, "unreachable", bed.ServiceIP}}); err != nil {
			t.Fatal(err)
		}
	}
	route("add")
	p.account(t, "another-audience")
	p.run(t)
	p.says(t, "msg=failed", "the Secret "+agentState+": the API server at "+bed.ServiceIP+":443: ")
	route("del")
	p.says(t, "the API server answers 401 Unauthorized: ")
	p.account(t)
	name := p.agentName(t)

	// The Secret is deleted: a new pod says what to do, and is another agent then.
	p.running.Stop()
	d.kubectl(t, "", "delete", "secret", agentState, "-n", namespace)
	p = d.start(t, namespace)
	p.says(t, `secrets \"`+agentState+`\" not found: apply the agent's manifest`)
	again := b.enroll(t, namespace, "--server", b.address)
	b.apply(t, namespace, again)
	for _, o := range documents(t, again) {
		if o.GetName() == agentInvitation {
			text, _, _ := unstructured.NestedString(o.Object, "stringData", "invitation.env")
			p.write(t, "/etc/tunnel-agent/invitation.env", []byte(text), 0o440, int(p.container.Group))
		}
	}
	if got := p.agentName(t); got == name {
		t.Errorf("got agent %s again, without its key", got)
	}
	// A Role that is gone.
	p.running.Stop()
	d.kubectl(t, "", "delete", "rolebinding", "tunnel-agent", "-n", namespace)
	p = d.start(t, namespace)
	p.says(t, "a Role must allow get and update of this Secret")
	b.apply(t, namespace, again)
	p.agentName(t)
}

// An agent on its node's network reaches the API server without the cluster's DNS.
func (b *agentBed) testHostNetwork(t *testing.T) {
	for _, args := range [][]string{nil, {"--api-server", b.d.Kube.Address()}} {
		namespace := fmt.Sprintf("host-%d", len(args))
		b.apply(t, namespace, b.enroll(t, namespace, append(args, "--server", b.address, "--host-network")...))
		p := b.d.start(t, namespace)
		p.agentName(t)
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return b.server.Dialer("agents/"+namespace).DialContext(ctx, "tcp", "kubernetes.default.svc:443")
		}
		conn, err := dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		c := p.object.Spec.Containers[0]
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			get := probe.HTTPGet
			transport := &http.Transport{DialContext: b.d.Node.DialContext, DisableKeepAlives: true}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+net.JoinHostPort(get.Host, p.port(get.Port.String()))+get.Path, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("%s: got %s", get.Path, res.Status)
			}
		}
		p.running.Stop() // its port is the node's
	}
}

// Every combination of flags makes a manifest that kubectl applies, and a pod that the
// API server takes in its namespace.
func (b *agentBed) testFlags(t *testing.T) {
	flags := [][]string{
		{"--host-network"},
		{"--api-server", "[fd00::1]:7443"},
		{"--allow", "*.svc:9090,10.0.0.0/8:1-1024"},
		{"--proxy", "http://user:p%40ss@proxy.example.com:3128", "--no-proxy", "10.0.0.0/8,.corp.example.com"},
	}
	var all []string
	for set := range 1 << len(flags) {
		args := []string{"--server", "tunnel.example.com:9443"}
		for i, flag := range flags {
			if set>>i&1 == 1 {
				args = append(args, flag...)
			}
		}
		name := fmt.Sprintf("flags-%d", set)
		all = append(all, b.enroll(t, name, args...))
		b.d.objects[name] = documents(t, all[set])
	}
	b.d.kubectl(t, strings.Join(all, "---\n"), "apply", "--server-side", "--validate=strict", "-f", "-")
	for set := range all {
		name := fmt.Sprintf("flags-%d", set)
		pod := podOf(b.d.template(t, name), "pod")
		if pod.Spec.HostNetwork != (set&1 == 1) {
			t.Errorf("%s: got a pod on the host's network: %t", name, pod.Spec.HostNetwork)
		}
		if err := b.d.admin.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// Only on the node's network is the namespace's pod security wide open.
		pod = podOf(b.d.template(t, name), "bold")
		pod.Spec.HostNetwork, pod.Spec.HostPID = false, true
		err := b.d.admin.Create(t.Context(), pod, client.DryRunAll)
		if privileged := set&1 == 1; (err == nil) != privileged {
			t.Errorf("%s: got %v of a pod with hostPID", name, err)
		}
		policies := b.d.kubectl(t, "", "get", "networkpolicy", "-n", name, "-o", "name")
		if (policies == "") != (set&1 == 1) {
			t.Errorf("%s: got %q", name, policies)
		}
	}
}
