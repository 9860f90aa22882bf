package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// Where the workload clusters are, in the API server's network, besides the
// bed's own, which is the one behind danted: that lets nobody go elsewhere.
const (
	squidKubeIP   = "192.0.2.11"
	tunnelKubeIP  = "192.0.2.12"
	changedKubeIP = "192.0.2.13"
	movedFromIP   = "192.0.2.14"
	movedToIP     = "192.0.2.15"
)

// TestManagement is what is to be seen from a management cluster. Its parts
// share the clusters, and have namespaces of their own.
func TestManagement(t *testing.T) {
	t.Parallel() // waits much
	began := time.Now()
	m := startManagement(t)
	m.deployed = m.deploy(t, "provider", "kubeconfig-provider")
	t.Logf("the clusters were ready after %v", time.Since(began))
	t.Run("together", func(t *testing.T) {
		t.Run("spec", m.testSpec)
		t.Run("kubeadm files", m.testKubeadmFiles)
		t.Run("ClusterCache", m.testClusterCache)
		t.Run("control plane", m.testControlPlane)
		t.Run("program", m.testProgram)
		t.Run("regenerate", m.testRegenerate)
		t.Run("rival", m.testRival)
		t.Run("plain routes", m.testPlainRoutes)
		t.Run("route kept", m.testRouteKept)
		t.Run("admission", m.testAdmission)
		t.Run("events", m.testEvents)
		t.Run("leader", m.testLeader)
		t.Run("two providers", m.testTwoProviders)
		t.Run("immutable", m.testImmutable)
		t.Run("alerts", m.testAlerts)
		t.Run("ticket life", m.testTicketLife)
	})
	t.Run("many", m.testMany)
	t.Run("propagator", m.testPropagator)
}

// A management is a management cluster, and three workload clusters that are
// reached from there by three ways.
type management struct {
	*bed.Kube
	bed    *bed.Bed
	admin  client.WithWatch
	config []byte // the administrator's kubeconfig

	deployed deployment

	squid, dante, tunnel workload
}

// A workload is a workload cluster, and the way there.
type workload struct {
	name   string
	kube   *bed.Kube
	route  kubeconfig.Route
	system string // the UID of kube-system
}

func (w workload) endpoint() kubeconfig.Endpoint {
	return kubeconfig.Endpoint{Host: w.kube.Host(), Port: w.kube.Port()}
}

func (m *management) workloads() []workload { return []workload{m.squid, m.dante, m.tunnel} }

// startManagement starts all of it, until the test ends.
func startManagement(t *testing.T) *management {
	t.Helper()
	b := sharedBed(t)
	m := &management{bed: b,
		squid:  workload{name: "squid", route: kubeconfig.Route{ProxyURL: b.Squid.URL().String()}},
		dante:  workload{name: "dante", route: kubeconfig.Route{ProxyURL: b.Dante.URL().String()}, kube: b.Kube},
		tunnel: workload{name: "tunnel"},
	}
	m.startKubes(t)
	scheme, err := capiScheme()
	if err != nil {
		t.Fatal(err)
	}
	config := m.Config()
	config.QPS = -1 // no limit: these tests write more than anybody
	if m.admin, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	m.config = m.kubeconfig(t, kubeconfig.Credentials{CAKey: m.CA.KeyPEM()})
	var agent agentInput
	m.tunnel.route.Tunnel, agent = m.startTunnel(t, bed.HubManagementIP)
	startAgent(t, b.Network.API, agent)
	for _, w := range []*workload{&m.squid, &m.dante, &m.tunnel} {
		if w.system, err = systemOf(t.Context(), w.kube); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *management) startKubes(t *testing.T) {
	t.Helper()
	network := m.bed.Network
	var starting sync.WaitGroup
	starting.Go(func() {
		var err error
		if m.Kube, err = m.bed.StartClusterAPI(t.Context()); err != nil {
			t.Error(err)
		}
	})
	for _, k := range []struct {
		w    *workload
		host string
	}{{&m.squid, squidKubeIP}, {&m.tunnel, tunnelKubeIP}} {
		starting.Go(func() {
			err := network.AddHost(t.Context(), k.host)
			if err == nil {
				k.w.kube, err = m.bed.StartKube(t.Context(), network.API, "workload-"+k.w.name, k.host, bed.KubeOptions{CA: pki.NewCA("kubernetes")})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	t.Cleanup(func() {
		for _, k := range []*bed.Kube{m.squid.kube, m.tunnel.kube} {
			if k != nil {
				k.Stop()
			}
		}
		if m.Kube != nil {
			m.Stop()
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}

// kubeconfig leads to the management cluster, from its own namespace.
func (m *management) kubeconfig(t *testing.T, credentials kubeconfig.Credentials) []byte {
	t.Helper()
	config, err := kubeconfig.Spec{Name: "management", CA: m.CA.CertPEM(), Credentials: credentials,
		Endpoint: kubeconfig.Endpoint{Host: m.Host(), Port: m.Port()}}.Build()
	if err != nil {
		t.Fatal(err)
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// startTunnel starts a server at an address of the hub's, and a gateway beside
// the management cluster. The agent is yet to be started, beside the API server.
func (m *management) startTunnel(t *testing.T, host string) (*kubeconfig.Tunnel, agentInput) {
	t.Helper()
	address := net.JoinHostPort(host, tunnelPort)
	h := newHub(t, &tunnel.Server{}, listen(t, m.bed.Network.Hub, address))
	proxy := h.serve(h.gateway(nil), (*gateway.Gateway).ServeConnect, listen(t, m.bed.Network.Client, "127.0.0.1:0"), "http")
	proxy.User = nil
	return &kubeconfig.Tunnel{Gateway: proxy.String(), Cluster: cluster, Password: password}, agentInput{
		Invitation: h.invite(address),
		Dir:        filepath.Join(t.TempDir(), "agent"),
		Proxy:      []hop{{URL: m.bed.Office.URL().String()}},
		Allow:      []string{m.tunnel.kube.Address()},
		Aliases:    map[string]string{apiTarget: m.tunnel.kube.Address()},
	}
}

// systemOf returns the UID of kube-system.
func systemOf(ctx context.Context, k *bed.Kube) (string, error) {
	admin, err := client.New(k.Config(), client.Options{})
	if err != nil {
		return "", err
	}
	var system corev1.Namespace
	err = admin.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system)
	return string(system.UID), err
}

// startCAPI starts Cluster API's manager beside the management cluster, until
// the test ends.
func (m *management) startCAPI(t *testing.T, input capiInput) *bed.Running {
	t.Helper()
	input.Kubeconfig = m.config
	return startRole(t, m.bed.Network.Client, "cluster-api-manager", input)
}

// waitConnected waits until Cluster API is connected to each Cluster, and has
// seen a probe of each succeed after a time.
func waitConnected(t *testing.T, manager *bed.Running, want map[string]workload, after time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := bed.Poll(ctx, "Cluster API to be connected, by a probe after "+after.Format(time.TimeOnly), func(context.Context) error {
		last, _, err := readStates(manager.Stdout())
		if err := errors.Join(err, manager.Ended()); err != nil {
			return bed.Stop(err)
		}
		for name, w := range want {
			s := last[name]
			if !s.Connected || s.System != w.system || s.Green.Before(after) {
				return fmt.Errorf("%s: got %+v, want the cluster %s", name, s, w.system)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, manager.Stderr())
	}
}
