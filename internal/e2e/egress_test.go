package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// The control plane of these tests is in the hub's namespace, its node in the
// API server's: nothing but a tunnel leads there.
const (
	egressProxy = "127.0.0.1:8131"
	webService  = bed.APIIP + ":18080" // the endpoint of a Service
	webhook     = bed.APIIP + ":18443" // that of a webhook's
	webhookIP   = "10.0.0.14"          // and the webhook's Service; no Service gets one of the first 16 by chance
	extension   = bed.APIIP + ":18444" // that of a webhook and of an aggregated API
	extensionIP = "10.0.0.15"          // and their Service
)

// What goes by kube-apiserver's selection "cluster" goes through the gateway,
// unmodified, and by no other way.
func TestEgress(t *testing.T) {
	b := sharedBed(t)
	for _, tt := range []struct {
		name  string
		serve func(*testing.T, *bed.Bed, *gateway.Gateway) (l net.Listener, transport string)
	}{
		{"unix", egressSocket},
		{"mtls", egressTLS},
	} {
		t.Run(tt.name, func(t *testing.T) { testEgress(t, b, tt.name, tt.serve) })
	}
}

func testEgress(t *testing.T, b *bed.Bed, name string, serve func(*testing.T, *bed.Bed, *gateway.Gateway) (l net.Listener, transport string)) {
	h, _ := egressTunnel(t, b)
	dialed := &dialedLog{}
	g := egressGateway(t, h, dialed)
	l, transport := serve(t, b, g)
	serveGateway(t, g, l)
	c := egressCell(t, b, startEgressKube(t, b, "egress-"+name, transport))
	for _, row := range append(egressRows(),
		row{"service and pod proxy", "kubectl", serviceProxy},
		row{"webhook of a Service", "kubectl", serviceWebhook}) {
		t.Run(row.name, func(t *testing.T) {
			before := len(dialed.list())
			if err := row.run(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			t.Logf("the gateway dialed %q", dialed.list()[before:])
		})
	}
	for _, target := range []string{b.Kubelet.Address(), webService, net.JoinHostPort(webhookIP, "443")} {
		if got := dialed.list(); !slices.Contains(got, target) {
			t.Errorf("the gateway dialed %q, want %s among them", got, target)
		}
	}
}

func egressGateway(t *testing.T, h *hub, dialed *dialedLog) *gateway.Gateway {
	return &gateway.Gateway{
		Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
			return h.Dialer(r.Cluster).DialContext(ctx, "tcp", r.Address)
		},
		Hooks: gateway.Hooks{
			Dialed: dialed.note,
			Failed: func(err error) { t.Logf("gateway: %v", err) },
		},
		Grace: -1,
	}
}

// egressRows are those of the matrix that reach a kubelet.
func egressRows() []row {
	return slices.DeleteFunc(interopRows(), func(r row) bool {
		return !slices.ContainsFunc([]string{"logs", "exec", "attach", "cp", "port-forward"},
			func(verb string) bool { return strings.HasPrefix(r.name, "kubectl "+verb) })
	})
}

// dialedLog is what a gateway has dialed.
type dialedLog struct {
	mu      sync.Mutex // guards targets
	targets []string
}

func (d *dialedLog) note(r gateway.Request, _ time.Duration, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.targets = append(d.targets, r.Address)
	}
}

func (d *dialedLog) list() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.targets)
}

// egressTunnel starts a server in the hub's namespace and two agents beside the
// node.
func egressTunnel(t *testing.T, b *bed.Bed) (*hub, []*bed.Running) {
	t.Helper()
	address := net.JoinHostPort(bed.HubIP, tunnelPort)
	h := newHub(t, &tunnel.Server{}, listen(t, b.Network.Hub, address))
	return h, []*bed.Running{startEgressAgent(t, b, h), startEgressAgent(t, b, h)}
}

func startEgressAgent(t *testing.T, b *bed.Bed, h *hub) *bed.Running {
	t.Helper()
	agent := startAgent(t, b.Network.API, agentInput{
		Invitation: h.invite(net.JoinHostPort(bed.HubIP, tunnelPort)),
		Dir:        filepath.Join(t.TempDir(), "agent"),
		Proxy:      []hop{{URL: b.Office.URL().String()}},
		Allow:      []string{b.Kubelet.Address(), webService},
		Aliases:    map[string]string{net.JoinHostPort(webhookIP, "443"): webhook, net.JoinHostPort(extensionIP, "443"): extension},
	})
	h.session(20 * time.Second)
	return agent
}

// egressSocket serves a socket that only kube-apiserver may open.
func egressSocket(t *testing.T, b *bed.Bed, g *gateway.Gateway) (l net.Listener, transport string) {
	path := filepath.Join(b.Dir, "egress.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g.Authenticate = func(context.Context, gateway.Credentials) (gateway.Identity, error) {
		return gateway.Identity{Name: "kube-apiserver", Cluster: cluster}, nil
	}
	return l, "{uds: {udsName: " + path + "}}"
}

// egressTLS serves a port, to those whose certificate names the cluster.
func egressTLS(t *testing.T, b *bed.Bed, g *gateway.Gateway) (l net.Listener, transport string) {
	ca := pki.NewCA("egress")
	host, _, _ := net.SplitHostPort(egressProxy)
	g.TLS, g.Authenticate = egressMutual(ca, host)
	dir := t.TempDir()
	cert, key := pki.PEM(ca.Client(cluster))
	for name, data := range map[string][]byte{"ca.crt": ca.CertPEM(), "tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return listen(t, b.Network.Hub, egressProxy), fmt.Sprintf("{tcp: {url: 'https://%s', tlsConfig: {caBundle: %[2]s/ca.crt, clientCert: %[2]s/tls.crt, clientKey: %[2]s/tls.key}}}", egressProxy, dir)
}

// egressMutual lets clients in whose certificate names the cluster.
func egressMutual(ca *pki.CA, host string) (*tls.Config, func(context.Context, gateway.Credentials) (gateway.Identity, error)) {
	config := &tls.Config{
		Certificates: []tls.Certificate{ca.Server(host)},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    ca.Pool(),
	}
	return config, func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
		if len(c.Certificates) == 0 {
			return gateway.Identity{}, gateway.ErrCredentials
		}
		name := c.Certificates[0].Subject.CommonName
		return gateway.Identity{Name: name, Cluster: name}, nil
	}
}

// serveGateway serves until the test ends.
func serveGateway(t *testing.T, g *gateway.Gateway, l net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- g.ServeConnect(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("ServeConnect: %v", err)
		}
	})
}

// startEgressKube starts a control plane that reaches its cluster by an HTTP proxy, until
// the test ends.
func startEgressKube(t *testing.T, b *bed.Bed, name, transport string) *bed.Kube {
	t.Helper()
	path := filepath.Join(b.Dir, name+".yaml")
	text := fmt.Sprintf("apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"+
		"- {name: cluster, connection: {proxyProtocol: HTTPConnect, transport: %s}}\n", transport)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := b.StartKube(t.Context(), b.Network.Hub, name, bed.HubIP, bed.KubeOptions{Args: []string{"--egress-selector-config-file=" + path}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	return k
}

// egressCell is the matrix's cell of a client that is beside kube-apiserver,
// and needs no door.
func egressCell(t *testing.T, b *bed.Bed, k *bed.Kube) *cell {
	t.Helper()
	c := &cell{door: &door{name: "egress"}, bed: b, hub: b.Network.Hub, namespace: "egress", dir: t.TempDir(),
		kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	text := tunnelKubeconfig(t, b, kubeconfig.Endpoint{Host: k.Host(), Port: k.Port()})
	if err := os.WriteFile(c.kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.AddNamespace(t.Context(), c.namespace); err != nil {
		t.Fatal(err)
	}
	if err := k.AddPod(t.Context(), c.namespace, "pod"); err != nil {
		t.Fatal(err)
	}
	return c
}
