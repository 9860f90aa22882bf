package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/etcd"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/proxy"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

const (
	ticketsName   = "tickets" // of the namespaces, and of the Cluster
	stackedKubeIP = "192.0.2.17"
	ticketsDoor   = "127.0.0.1:3130"
)

// etcdInput is the certificate of an etcd's client.
type etcdInput struct{ Cert, Key []byte }

// dial asks etcd for its members by a port-forward to its pod, with the configuration that
// ClusterCache has: what the controller of the kubeadm control plane does, by its own packages
// (GetWorkloadCluster, and EtcdClientGenerator, which has no exported method). The dialer says what
// fails; of etcd's client one only sees that its time is over.
func (in *etcdInput) dial(ctx context.Context, clusters clustercache.ClusterCache, key client.ObjectKey, state capiState) capiState {
	members, err := in.askMembers(ctx, clusters, key)
	if err == nil && len(members) != 1 {
		err = fmt.Errorf("got the members %v", members)
	}
	if state.EtcdError = ""; err != nil {
		state.EtcdError = err.Error()
		return state
	}
	state.EtcdDials++
	return state
}

func (in *etcdInput) askMembers(ctx context.Context, clusters clustercache.ClusterCache, key client.ObjectKey) ([]*etcd.Member, error) {
	pair, err := tls.X509KeyPair(in.Cert, in.Key)
	if err != nil {
		return nil, err
	}
	config, err := clusters.GetRESTConfig(ctx, key)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Timeout = 30 * time.Second
	pod, to := "etcd-"+bed.NodeName, proxy.Proxy{Kind: "pods", Namespace: metav1.NamespaceSystem, KubeConfig: config, Port: 2379}
	dialer, err := proxy.NewDialer(to)
	if err != nil {
		return nil, err
	}
	conn, err := dialer.DialContextWithAddr(ctx, pod)
	if err != nil {
		return nil, err
	}
	conn.Close()
	c, err := etcd.NewClient(ctx, etcd.ClientConfiguration{
		Endpoint:    pod,
		Proxy:       to,
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true},
		DialTimeout: 5 * time.Second,
		CallTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Members(ctx)
}

// A ticketRow is a Cluster with stacked etcd, whose kubeconfig has a ticket that causeway server
// has made.
type ticketRow struct {
	*management
	t       *testing.T
	w       workload
	cluster *clusterv1.Cluster
	etcd    etcdInput
	state   []string // the flags of it
}

// Cluster API keeps the ticket that it has connected with as long as the connection lives
// (cluster-api#12399), and dials etcd with it. So a life that ends before that is no life: once it
// is over each dial gets a 407, though the Secret has a new ticket. With the default nothing ends,
// and a key that is rotated is accepted until it is dropped, which says who uses it.
func (m *management) testTicketLife(t *testing.T) {
	t.Parallel()
	r := m.startTicketRow(t)
	server := r.serve("--ticket-life", "15s")
	r.connectAgent()
	manager := r.manage()
	r.awaitState(manager, "etcd to be refused after the end of a ticket", func(s capiState) bool { return s.EtcdDials > 0 && r.isRefused(s) })
	if _, lost, err := readStates(manager.Stdout()); err != nil || len(lost) > 0 {
		t.Errorf("got %+v, %v, want that ClusterCache has lost no connection", lost, err)
	}
	again := r.manage()
	r.awaitDials(again, 1)
	again.Stop()
	manager.Stop()

	server.Stop()
	r.serve()
	r.awaitTicket("a ticket for a year", func(s *corev1.Secret) bool {
		expires, err := time.Parse(time.RFC3339, s.Annotations[provider.Prefix+"expires"])
		return err == nil && time.Until(expires) > 364*24*time.Hour
	})
	manager = r.manage()
	r.awaitDials(manager, 5)
	former := r.password()
	r.rotate("add")
	r.rotate("switch", "--force")
	r.awaitTicket("a ticket of the new key", func(s *corev1.Secret) bool { return string(s.Data[provider.KeyPassword]) != former })
	r.awaitDials(manager, 10)
	if last, lost, err := readStates(manager.Stdout()); err != nil || len(lost) > 0 {
		t.Errorf("got %+v, %+v, %v, want that nothing failed", last, lost, err)
	}
	eventually(t, "rotate drop to say who uses the former key", func(ctx context.Context) error {
		out, err := m.bed.Network.Client.Run(ctx, r.rotation("drop"))
		if err == nil {
			return bed.Stop(errors.New("it was dropped"))
		}
		if want := ticketsName + "/" + ticketsName; !strings.Contains(out, want) || !strings.Contains(err.Error(), "1 clients have used the former key") {
			return fmt.Errorf("got %q and %w, want the client %s", out, err, want)
		}
		t.Log(out)
		return nil
	})
	r.awaitDials(manager, 1)
	r.rotate("drop", "--force")
	r.awaitState(manager, "etcd to be refused after the drop", r.isRefused)
	r.awaitDials(r.manage(), 1)
}

// startTicketRow starts the workload cluster, and all but the server.
func (m *management) startTicketRow(t *testing.T) *ticketRow {
	t.Helper()
	r := &ticketRow{management: m, t: t, w: workload{name: ticketsName}}
	if err := m.bed.Network.AddHost(t.Context(), stackedKubeIP); err != nil {
		t.Fatal(err)
	}
	var err error
	r.w.kube, err = m.bed.StartKube(t.Context(), m.bed.Network.API, "workload-stacked", stackedKubeIP, bed.KubeOptions{StackedEtcd: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.w.kube.Stop)
	r.etcd.Cert, r.etcd.Key = pki.PEM(r.w.kube.CA.Client("kube-apiserver-etcd-client"))
	if err := r.w.kube.AddPod(t.Context(), metav1.NamespaceSystem, "etcd-"+bed.NodeName); err != nil {
		t.Fatal(err)
	}
	if r.w.system, err = systemOf(t.Context(), r.w.kube); err != nil {
		t.Fatal(err)
	}
	admin := filepath.Join(t.TempDir(), "admin")
	writeFile(t, admin, string(m.config))
	m.namespace(t, ticketsName)
	r.state = []string{"--secrets", ticketsName + "/tunnel", "--kubeconfig", admin}
	r.cluster = m.bear(t, ticketsName, ticketsName, r.w, birth{})
	m.change(t, r.cluster, func() { r.cluster.Labels = map[string]string{provider.LabelTunnel: "true"} })
	if err := capikubeconfig.CreateSecret(t.Context(), m.admin, r.cluster, quickly); err != nil {
		t.Fatal(err)
	}
	m.startProvider(t, providerInput{Namespaces: []string{ticketsName}})
	return r
}

// serve starts the server of the tunnel beside the management cluster.
func (r *ticketRow) serve(flags ...string) *bed.Running {
	r.t.Helper()
	address := net.JoinHostPort(bed.ClientIP, tunnelPort)
	argv := append([]string{r.deployed.program, "server", "--listen", address, "--advertise", address, "--status", "", "--connect", ticketsDoor,
		"--gateway", "http://" + ticketsDoor, "--clusters", "--watch", "100ms", "--grace", "0s"}, r.state...)
	s, err := r.bed.Network.Client.Start(r.t.Context(), bed.Command{Argv: append(argv, flags...)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		s.Stop()
		if r.t.Failed() {
			r.t.Logf("server: %v", s.Stderr())
		}
	})
	return s
}

// connectAgent starts an agent beside the API server, by the Cluster's invitation.
func (r *ticketRow) connectAgent() {
	r.t.Helper()
	var invitation string
	eventually(r.t, "an invitation", func(ctx context.Context) error {
		s, err := r.secret(ctx, ticketsName, ticketsName+provider.SuffixTunnelAgent)
		invitation = string(s.Data[provider.KeyAgentInvitation])
		return err
	})
	startAgent(r.t, r.bed.Network.API, agentInput{Invitation: invitation, Proxy: []hop{{URL: r.bed.Office.URL().String()}},
		Allow: []string{r.w.kube.Address()}, Aliases: map[string]string{apiTarget: r.w.kube.Address()}})
	eventually(r.t, "the kubeconfig to lead to the cluster", func(ctx context.Context) error { return r.reaches(ctx, r.cluster, r.w) })
}

// manage starts Cluster API's manager.
func (r *ticketRow) manage() *bed.Running {
	r.t.Helper()
	return r.startCAPI(r.t, capiInput{Namespace: ticketsName, Clusters: []string{ticketsName}, Etcd: &r.etcd})
}

// awaitState waits until the manager is connected, and in a state.
func (r *ticketRow) awaitState(manager *bed.Running, what string, holds func(capiState) bool) {
	r.t.Helper()
	eventually(r.t, what, func(context.Context) error {
		last, _, err := readStates(manager.Stdout())
		if err := errors.Join(err, manager.Ended()); err != nil {
			return bed.Stop(err)
		}
		if s := last[ticketsName]; !s.Connected || !holds(s) {
			return fmt.Errorf("got %+v", s)
		}
		return nil
	})
}

// awaitDials waits until etcd was reached so many times more, and fails if it was not once.
func (r *ticketRow) awaitDials(manager *bed.Running, more int) {
	r.t.Helper()
	last, _, err := readStates(manager.Stdout())
	if err != nil {
		r.t.Fatal(err)
	}
	before := last[ticketsName].EtcdDials
	r.awaitState(manager, "etcd to be reached", func(s capiState) bool {
		if before > 0 && s.EtcdError != "" {
			r.t.Fatalf("a dial to etcd: %s", s.EtcdError)
		}
		return s.EtcdDials >= before+more
	})
}

// isRefused says that the gateway has refused the ticket of the last dial to etcd.
func (*ticketRow) isRefused(s capiState) bool {
	return strings.Contains(s.EtcdError, "Proxy Authentication Required") || strings.Contains(s.EtcdError, "407")
}

// awaitTicket waits until the Cluster's ticket is as is wanted, and the kubeconfig has it.
func (r *ticketRow) awaitTicket(what string, holds func(*corev1.Secret) bool) {
	r.t.Helper()
	eventually(r.t, what, func(ctx context.Context) error {
		s, err := r.secret(ctx, ticketsName, ticketsName+provider.SuffixTunnelRoute)
		if err != nil || !holds(s) { // the server looks at a Cluster once a minute, or when it changes
			r.annotate(r.t, r.cluster, map[string]string{provider.Prefix + "look": time.Now().Format(time.StampMilli)})
			return errors.Join(err, fmt.Errorf("got a Secret with %v", s.Annotations))
		}
		_, proxy, _, err := r.entry(ctx, r.cluster)
		if err == nil && !strings.Contains(proxy, ":"+string(s.Data[provider.KeyPassword])+"@") {
			err = errors.New("the kubeconfig has another ticket")
		}
		return err
	})
}

// password is that of the Cluster's ticket.
func (r *ticketRow) password() string {
	r.t.Helper()
	s, err := r.secret(r.t.Context(), ticketsName, ticketsName+provider.SuffixTunnelRoute)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(s.Data[provider.KeyPassword])
}

func (r *ticketRow) rotation(args ...string) bed.Command {
	return bed.Command{Argv: append(append([]string{r.deployed.program, "rotate", "--tickets"}, args...), r.state...)}
}

func (r *ticketRow) rotate(args ...string) {
	r.t.Helper()
	out, err := r.bed.Network.Client.Run(r.t.Context(), r.rotation(args...))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Log(strings.TrimSpace(out))
}
