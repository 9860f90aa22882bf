package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/tunnel/egress"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// TestEgressPhases: "causeway egress set" brings real kube-apiservers through all phases
// and back, with one restart each, and goes back by itself where something is wrong.
func TestEgressPhases(t *testing.T) {
	b := sharedBed(t)
	dir := t.TempDir()
	goBuild(t, programsModule, dir, "./causeway") // as it is deployed
	t.Run("render", func(t *testing.T) { testRender(t, filepath.Join(dir, "causeway")) })
	t.Run("static pod, ticket", func(t *testing.T) { testStaticPhases(t, b, filepath.Join(dir, "causeway")) })
	t.Run("Deployment, certificate", func(t *testing.T) { testHostedPhases(t, b, filepath.Join(dir, "causeway")) })
	t.Run("faults", func(t *testing.T) { testPhaseFaults(t, b, filepath.Join(dir, "causeway")) })
}

// phaseGate is the gateway that the sidecars use.
var phaseGate = net.JoinHostPort(bed.HubIP, "3129")

// phased is a kube-apiserver whose phase is changed.
type phased struct {
	*cell
	t       *testing.T
	pod     *apiServerPod
	dialed  *dialedLog
	denied  atomic.Bool // the gateway leads to no kubelet
	tickets gateway.Tickets
	flags   []string // of "egress set"
	dir     string   // what the sidecar sees
}

// newPhased starts a control plane in ns, with the tunnel's ends and a gateway in the
// hub's namespace.
func newPhased(t *testing.T, b *bed.Bed, program, name string, ns *bed.Namespace, host string) *phased {
	t.Helper()
	k, err := b.StartKube(t.Context(), ns, name, host, bed.KubeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	c := egressCell(t, b, k)
	c.hub = ns
	p := &phased{cell: c, t: t, dialed: &dialedLog{}, dir: filepath.Join(b.Dir, name+"-egress"),
		pod: &apiServerPod{t: t, kube: k, ns: ns, program: program}}
	t.Cleanup(p.pod.stop)
	for _, d := range []string{"socket", "credentials"} {
		if err := os.MkdirAll(filepath.Join(p.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.flags = []string{"--kubeconfig", c.kubeconfig, "--dir", p.dir, "--image", "causeway:test", "--timeout", "40s"}
	return p
}

// serve serves the gateway: by tickets, or with TLS by certificates.
func (p *phased) serve(h *hub, ca *pki.CA) {
	p.t.Helper()
	g := egressGateway(p.t, h, p.dialed)
	dial := g.Dial
	g.Dial = func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		if p.denied.Load() && r.Address == p.bed.Kubelet.Address() {
			r.Cluster = strictCluster
		}
		return dial(ctx, r)
	}
	g.Authenticate = p.tickets.Authenticate
	scheme := "http://"
	if ca != nil {
		scheme = "https://"
		g.TLS, g.Authenticate = egressMutual(ca, bed.HubIP)
		cert, key := pki.PEM(ca.Client(cluster))
		for name, text := range map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.CertPEM()} {
			if err := p.credential(name, string(text)); err != nil {
				p.t.Fatal(err)
			}
		}
	} else {
		p.goodTicket()
	}
	p.flags = append(p.flags, "--gateway", scheme+phaseGate)
	serveGateway(p.t, g, listen(p.t, p.bed.Network.Hub, phaseGate))
}

// credential writes a file at once, as a kubelet updates a Secret.
func (p *phased) credential(name, text string) error {
	path := filepath.Join(p.dir, "credentials", name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (p *phased) goodTicket() {
	p.t.Helper()
	user, password, err := p.tickets.Issue(gateway.Identity{Name: "kube-apiserver", Cluster: cluster}, time.Hour)
	if err == nil {
		err = p.credential("username", user+"\n")
	}
	if err == nil {
		err = p.credential("password", password+"\n")
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *phased) wrongTicket() error { return p.credential("password", "wrong") }

// set runs "causeway egress set", which has to end well or not, and has to say texts.
func (p *phased) set(phase egress.Phase, good bool, restarts int, texts []string, flags ...string) string {
	p.t.Helper()
	argv := append([]string{p.pod.program, "egress", "set", string(phase), cluster}, append(p.flags, flags...)...)
	began := time.Now()
	out, err := p.bed.Network.Proxy.Run(p.t.Context(), bed.Command{Argv: argv})
	p.t.Logf("egress set %s %q: %.1f s, %v\n%s", phase, flags, time.Since(began).Seconds(), err, out)
	if (err == nil) != good {
		p.t.Fatalf("egress set %s: %v, want success: %t\n%s", phase, err, good, out)
	}
	for _, text := range texts {
		if !strings.Contains(out+fmt.Sprint(err), text) {
			p.t.Errorf("egress set %s does not say %q", phase, text)
		}
	}
	if got := p.pod.takeRestarts(); got != restarts {
		p.t.Errorf("egress set %s: kube-apiserver was restarted %d times, want %d", phase, got, restarts)
	}
	return out
}

// works makes the API server reach the kubelet, and returns whether the gateway was asked.
func (p *phased) works() (throughGateway bool) {
	p.t.Helper()
	before := len(p.dialed.list())
	if err := (streaming{}).exec(p.t.Context(), p.cell); err != nil { // a connection each
		p.t.Errorf("the API server does not work: %v", err)
	}
	return len(p.dialed.list()) > before
}

func (p *phased) testRows() {
	for _, row := range append(egressRows(),
		row{"service and pod proxy", "kubectl", serviceProxy},
		row{"webhook of a Service", "kubectl", serviceWebhook}) {
		p.t.Run(row.name, func(t *testing.T) {
			before := len(p.dialed.list())
			if err := row.run(t.Context(), p.cell); err != nil {
				t.Fatal(err)
			}
			t.Logf("the gateway dialed %q", p.dialed.list()[before:])
		})
	}
	if _, err := p.hub.Run(p.t.Context(), p.kubectl("", "delete", "validatingwebhookconfiguration", "hook")); err != nil {
		p.t.Error(err)
	}
}

// newStatic is a kube-apiserver in the proxies' namespace, which reaches the kubelet
// directly, too.
func newStatic(t *testing.T, b *bed.Bed, program, name string) (p *phased, manifest string) {
	t.Helper()
	p = newPhased(t, b, program, name, b.Network.Proxy, bed.HubProxyIP)
	manifest = p.pod.runStatic(filepath.Join(b.Dir, name+"-manifests", "manifests"))
	p.flags = append(p.flags, "--manifest", manifest, "--credentials", filepath.Join(p.dir, "credentials"))
	return p, manifest
}

func testStaticPhases(t *testing.T, b *bed.Bed, program string) {
	h, _ := egressTunnel(t, b)
	p, manifest := newStatic(t, b, program, "egress-static")
	p.serve(h, nil)
	original, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	ok := []string{"and works"}
	p.set(egress.PhaseOn, false, 0, []string{"the next one is beside"})
	p.set(egress.PhaseBeside, true, 0, []string{"name: causeway-egress", "BEFORE"}, "--dry-run")
	p.set(egress.PhaseBeside, true, 1, append(ok, "kubelet "+bed.NodeName, "logs egress/pod"))
	if p.works() {
		t.Error("kube-apiserver uses the sidecar in the phase beside")
	}
	checkSocket(t, p)
	p.set(egress.PhaseBeside, true, 0, []string{"already: nothing was changed"})
	cut := p.followLog()
	p.set(egress.PhaseOn, true, 0, []string{"    - --egress-selector-config-file="}, "--dry-run")
	p.set(egress.PhaseOn, true, 1, ok)
	t.Logf("the log that was followed ended at the switch: %v", next(t, cut, slack, "the followed log's end"))
	if !p.works() {
		t.Error("kube-apiserver does not use the sidecar in the phase on")
	}
	p.testRows()
	p.sidecarRestart()
	p.set(egress.PhaseBeside, true, 1, ok)
	p.set(egress.PhaseOff, true, 1, ok)
	if p.works() {
		t.Error("kube-apiserver uses a gateway in the phase off")
	}
	if text, err := os.ReadFile(manifest); err != nil || string(text) != string(original) {
		t.Errorf("the manifest is not what it was: %v\n%s", err, text)
	}
}

// checkSocket checks that only the user of the sidecar can open the socket.
func checkSocket(t *testing.T, p *phased) {
	t.Helper()
	info, err := os.Stat(filepath.Join(p.dir, "socket", egress.SocketName))
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: got %v, %v; want mode 0600", info, err)
	}
}

// followLog follows a log, and tells its end.
func (p *phased) followLog() <-chan error {
	p.t.Helper()
	r, err := p.hub.Start(p.t.Context(), p.kubectl("", "logs", "-f", "pod"))
	if err == nil {
		err = r.WaitFor(p.t.Context(), "line 1\n")
	}
	if err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Wait() }()
	return ended
}

// sidecarRestart kills the sidecar, which leaves its socket, and starts it again.
func (p *phased) sidecarRestart() {
	p.t.Helper()
	p.pod.mu.Lock()
	peak, err := p.pod.sidecar.PeakMemory()
	p.t.Logf("the sidecar had at most %d MiB, %v", peak>>20, err)
	p.pod.sidecar.Stop()
	err = p.pod.startSidecar(p.t.Context(), &p.pod.container)
	p.pod.mu.Unlock()
	if err != nil {
		p.t.Fatal(err)
	}
	if !p.works() {
		p.t.Error("kube-apiserver does not use the sidecar after its restart")
	}
}

// testHostedPhases has a kube-apiserver that reaches the kubelet by the tunnel only, as a
// Deployment of the bed's other cluster.
func testHostedPhases(t *testing.T, b *bed.Bed, program string) {
	const namespace = "egress-hosted"
	h, _ := egressTunnel(t, b)
	p := newPhased(t, b, program, namespace, b.Network.Hub, bed.HubIP)
	p.serve(h, pki.NewCA("gateway"))
	if err := b.Kube.AddNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	management := filepath.Join(t.TempDir(), "management")
	if err := os.WriteFile(management, tunnelKubeconfig(t, b, kubeconfig.Endpoint{Host: b.Kube.Host(), Port: b.Kube.Port()}), 0o600); err != nil {
		t.Fatal(err)
	}
	p.pod.runDeployment(kubernetes.NewForConfigOrDie(b.Kube.Config()), b.Kubelet, namespace)
	p.flags = append(p.flags, "--deployment", namespace+"/prod-apiserver", "--management-kubeconfig", management,
		"--credentials-secret", "prod-tunnel-route")
	ok := []string{"and works"}
	stop, err := serveExtension(t.Context(), p.cell)
	if err != nil {
		t.Fatal(err)
	}
	p.set(egress.PhaseBeside, true, 1, append(ok, "kubelet "+bed.NodeName))
	checkSocket(t, p)
	out := p.set(egress.PhaseOn, true, 1, ok)
	for _, request := range []string{"logs egress/pod", "aggregated API v1.extension.example.com"} {
		if !regexp.MustCompile(regexp.QuoteMeta(request) + ` +FAILS: .* ok\n`).MatchString(out) {
			t.Errorf("the report does not say that %s has come to work", request)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if !p.works() {
		t.Error("kube-apiserver does not use the sidecar in the phase on")
	}
	p.testRows()
	// The other way has never worked: it takes a word to go back to it.
	p.set(egress.PhaseBeside, false, 0, []string{"can't be reached directly, though the other way works", "--force"})
	p.set(egress.PhaseBeside, true, 1, ok, "--force")
	p.set(egress.PhaseOff, true, 1, ok)
}

// strictCluster is one whose agent does not allow the kubelet.
const strictCluster = "e2e/strict"

func startStrictAgent(t *testing.T, b *bed.Bed, h *hub) {
	t.Helper()
	address := net.JoinHostPort(bed.HubIP, tunnelPort)
	invitation, err := h.Invite(t.Context(), strictCluster, 0)
	if err != nil {
		t.Fatal(err)
	}
	invitation.Servers = []string{address}
	startAgent(t, b.Network.API, agentInput{Invitation: invitation.Reveal(), Proxy: []hop{{URL: b.Office.URL().String()}}, Allow: []string{webService}})
	h.session(20 * time.Second)
}

// testPhaseFaults: whatever is wrong, kube-apiserver works in the former phase afterwards.
func testPhaseFaults(t *testing.T, b *bed.Bed, program string) {
	h, _ := egressTunnel(t, b)
	startStrictAgent(t, b, h)
	p, _ := newStatic(t, b, program, "egress-faults")
	p.serve(h, nil)
	outer, socket := t, filepath.Join(p.dir, "socket", egress.SocketName)
	removeConfig := func() error { return os.Remove(filepath.Join(p.dir, "socket", egress.ConfigName)) }
	failPod := func() error { return fmt.Errorf("the image can't be pulled") }
	deny := func() error { p.denied.Store(true); return nil }
	soon := []string{"--timeout", "20s"} // it is waited for to the end
	for _, tt := range []struct {
		name     string
		to       egress.Phase
		now      func() error // before the command
		fault    func() error // while the pod restarts
		restarts int          // with the way back
		texts    []string
		flags    []string
	}{
		{"gateway away", egress.PhaseBeside, nil, nil, 2, []string{"can't be reached through the tunnel", "going back to off"}, []string{"--gateway", "http://" + bed.HubIP + ":3130"}},
		{"wrong ticket", egress.PhaseBeside, p.wrongTicket, nil, 2, []string{"407", "going back to off"}, nil},
		{"kubelet denied", egress.PhaseBeside, deny, nil, 2, []string{"403", "going back to off"}, nil},
		{"pod does not start", egress.PhaseBeside, nil, failPod, 2, []string{"does not work within", "going back to off"}, soon},
		{"", egress.PhaseBeside, nil, nil, 1, nil, nil},
		{"wrong ticket, known before", egress.PhaseOn, p.wrongTicket, nil, 0, []string{"stays in the phase beside"}, nil},
		{"kubelet denied, known before", egress.PhaseOn, deny, nil, 0, []string{"403", "stays in the phase beside"}, nil},
		{"sidecar away, known before", egress.PhaseOn, func() error { return os.Rename(socket, socket+".away") }, nil, 0, []string{"the ways can't be compared"}, nil},
		{"wrong ticket", egress.PhaseOn, nil, p.wrongTicket, 2, []string{"logs egress/pod fails", "going back to beside"}, soon},
		{"kubelet denied", egress.PhaseOn, nil, deny, 2, []string{"logs egress/pod fails", "going back to beside"}, soon},
		{"no configuration", egress.PhaseOn, nil, removeConfig, 2, []string{"does not work within", "going back to beside"}, soon},
		{"", egress.PhaseOn, nil, nil, 1, nil, nil},
		{"pod does not start", egress.PhaseBeside, nil, failPod, 2, []string{"does not work within", "going back to on"}, soon},
		{"", egress.PhaseBeside, nil, nil, 1, nil, nil},
		{"pod does not start", egress.PhaseOff, nil, failPod, 2, []string{"does not work within", "going back to beside"}, soon},
	} {
		good := tt.name == ""
		t.Run(strings.Trim(tt.name+" to "+string(tt.to), " "), func(t *testing.T) {
			p.t = t
			defer func() { p.t = outer }()
			if tt.now != nil {
				if err := tt.now(); err != nil {
					t.Fatal(err)
				}
			}
			p.pod.setFault(tt.fault)
			p.set(tt.to, good, tt.restarts, tt.texts, tt.flags...)
			p.pod.setFault(nil)
			p.denied.Store(false)
			os.Rename(socket+".away", socket)
			p.goodTicket()
			p.works()
		})
	}
	// As after a command that was killed before it went back.
	p.pod.kube.StopAPIServer()
	p.set(egress.PhaseOff, false, 0, []string{"--force goes back to the phase before"})
	p.set(egress.PhaseOff, true, 1, []string{"there is no report", "and works"}, "--force")
	p.works()
}
