package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// ownKube gives the row a workload cluster that nobody else needs.
func ownKube(t *testing.T, r *eventRow) {
	ctx, network := t.Context(), r.bed.Network
	err := network.AddHost(ctx, changedKubeIP)
	if err == nil {
		r.kube, err = r.bed.StartKube(ctx, network.API, "workload-changed", changedKubeIP, bed.KubeOptions{CA: pki.NewCA("kubernetes")})
	}
	if err == nil {
		t.Cleanup(r.kube.Stop)
		r.system, err = systemOf(ctx, r.kube)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// caChanged: the Secret <cluster>-ca changes before the API server does.
func caChanged(t *testing.T, r *eventRow) {
	ca := pki.NewCA("kubernetes")
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.cluster.Namespace, Name: r.cluster.Name + "-ca"}}
	r.change(t, s, func() { s.Data = caSecret(r.cluster, ca, true).Data })
	if err := r.leads(t.Context()); err != nil {
		t.Fatalf("with a CA that the API server does not know of yet: %v", err)
	}
	if err := r.kube.SetCA(t.Context(), ca); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Secret to lead to the API server of the new CA", r.leads)
	stored, err := r.stored(t.Context(), r.cluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := issuedBy(stored, ca); err != nil {
		t.Error(err)
	}
}

// movable gives the row an endpoint that can go away: a relay to the API server.
func movable(t *testing.T, r *eventRow) {
	r.birth.endpoint = r.relay(t, movedFromIP)
	r.birth.annotations = map[string]string{provider.AnnotationTLSServerName: "kubernetes.default.svc"}
}

// relay gives the API server another address, until the test ends.
func (r *eventRow) relay(t *testing.T, host string) kubeconfig.Endpoint {
	t.Helper()
	if err := r.bed.Network.AddHost(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	g := &gateway.Gateway{Authenticate: gateway.Anyone, Grace: -1}
	g.Route = func(_ context.Context, request *gateway.Request) error {
		request.Cluster, request.Address = cluster, r.kube.Address()
		return nil
	}
	g.Dial = func(ctx context.Context, request gateway.Request) (net.Conn, error) {
		return r.bed.Network.API.DialContext(ctx, "tcp", request.Address)
	}
	serveUntil(t, g, g.ServeSNI, listen(t, r.bed.Network.API, net.JoinHostPort(host, "6443")))
	return kubeconfig.Endpoint{Host: host, Port: bed.APIPort}
}

func endpointMoved(t *testing.T, r *eventRow) {
	to := r.relay(t, movedToIP)
	r.change(t, r.cluster, func() {
		r.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: to.Host, Port: to.Port}
	})
	eventually(t, "the Secret to have the new endpoint", func(ctx context.Context) error {
		server, _, name, err := r.entry(ctx, r.cluster)
		if err == nil && (server != "https://"+to.String() || name != "kubernetes.default.svc") {
			err = fmt.Errorf("got server %q, tls-server-name %q", server, name)
		}
		return errors.Join(err, r.leads(ctx))
	})
}

// passwordChanged: the Secret knows of it before the proxy does.
func passwordChanged(t *testing.T, r *eventRow) {
	const next = "ne:w/p@ss+%"
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.cluster.Namespace, Name: "route"}}
	r.change(t, s, func() { s.Data[provider.KeyPassword] = []byte(next) })
	eventually(t, "the proxy to be asked with the new password", func(context.Context) error {
		if r.proxy.refused.Load() == 0 {
			return errors.New("it was not")
		}
		return nil
	})
	if err := r.leads(t.Context()); err != nil {
		t.Fatalf("with a password that the proxy does not know yet: %v", err)
	}
	r.proxy.password.Store(ptr.To(next))
	eventually(t, "the Secret to have the new password", r.leads)
	r.routeReady(t, r.cluster, metav1.ConditionTrue)
}

func proxyDown(t *testing.T, r *eventRow) {
	r.proxy.close()
	r.unchanged(t, func() { r.routeReady(t, r.cluster, metav1.ConditionFalse, "TCPFailed") })
	r.proxy.open(t)
	r.routeReady(t, r.cluster, metav1.ConditionTrue)
	if err := r.leads(t.Context()); err != nil {
		t.Error(err)
	}
}

// unchanged wants the kubeconfig to be what it was before.
func (r *eventRow) unchanged(t *testing.T, happens func()) {
	t.Helper()
	before, err := r.stored(t.Context(), r.cluster)
	if err != nil {
		t.Fatal(err)
	}
	happens()
	after, err := r.stored(t.Context(), r.cluster)
	if err != nil {
		t.Fatal(err)
	}
	if string(before.Data[kubeconfig.SecretKey]) != string(after.Data[kubeconfig.SecretKey]) {
		t.Error("the kubeconfig has changed")
	}
}

// ownTunnel gives the row a tunnel whose agent can be stopped.
func ownTunnel(t *testing.T, r *eventRow) {
	r.workload = r.management.tunnel
	r.route.Tunnel, r.agentInput = r.startTunnel(t, bed.HubSpareIP)
	r.agent = startAgent(t, r.bed.Network.API, r.agentInput)
}

func tunnelDown(t *testing.T, r *eventRow) {
	r.agent.Stop()
	r.unchanged(t, func() { r.routeReady(t, r.cluster, metav1.ConditionFalse, "ConnectFailed") })
	r.agent = startAgent(t, r.bed.Network.API, r.agentInput)
	r.routeReady(t, r.cluster, metav1.ConditionTrue)
	if err := r.leads(t.Context()); err != nil {
		t.Error(err)
	}
}

func (r *eventRow) deleteSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	s, err := r.stored(t.Context(), r.cluster)
	if err == nil {
		err = r.admin.Delete(t.Context(), s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// secretDeleted: the control plane makes it anew, not the provider.
func secretDeleted(t *testing.T, r *eventRow) {
	r.deleteSecret(t)
	r.routeReady(t, r.cluster, metav1.ConditionFalse, provider.ReasonNoSecret)
	if err := capikubeconfig.CreateSecret(t.Context(), r.admin, r.cluster, quickly); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new Secret to lead to the cluster", r.leads)
}

// ownSecretDeleted: nobody else would.
func ownSecretDeleted(t *testing.T, r *eventRow) {
	before := r.deleteSecret(t)
	eventually(t, "the new Secret to lead to the cluster", r.leads)
	after, err := r.stored(t.Context(), r.cluster)
	if err != nil {
		t.Fatal(err)
	}
	if after.UID == before.UID || after.Type != corev1.SecretTypeOpaque {
		t.Errorf("got the type %s, want another Secret of type Opaque", after.Type)
	}
	owners := after.OwnerReferences
	if len(owners) != 1 || owners[0].Kind != "Cluster" || owners[0].UID != r.cluster.UID || owners[0].Controller != nil {
		t.Errorf("got the owners %+v, want the Cluster alone, not as its controller", owners)
	}
}

func secretCorrupted(t *testing.T, r *eventRow) {
	s, err := r.stored(t.Context(), r.cluster)
	if err != nil {
		t.Fatal(err)
	}
	r.change(t, s, func() { s.Data[kubeconfig.SecretKey] = []byte("}{ no kubeconfig") })
	eventually(t, "the Secret to lead to the cluster", r.leads)
	r.routeReady(t, r.cluster, metav1.ConditionTrue)
}

// clusterPaused: what is wiped stays wiped for as long as the Cluster is paused.
func clusterPaused(t *testing.T, r *eventRow) {
	r.change(t, r.cluster, func() { r.cluster.Spec.Paused = ptr.To(true) })
	witness := r.seen(t)
	r.regenerate(t, r.cluster)
	r.unchanged(t, func() {
		// What is done for another Cluster afterwards would have been done for
		// this one.
		r.regenerate(t, witness)
		eventually(t, "the witness to be decorated", func(ctx context.Context) error { return r.reaches(ctx, witness, r.workload) })
	})
	if err := r.leads(t.Context()); err == nil {
		t.Error("the Secret of a paused Cluster was decorated")
	}
	r.change(t, r.cluster, func() { r.cluster.Spec.Paused = nil })
	eventually(t, "the Secret to lead to the cluster", r.leads)
	r.addForeign(t) // regeneration has wiped those of the kubeconfig
}

// seen returns when the provider has seen what was done to the row's Cluster: it
// has done something for one that was born after that.
func (r *eventRow) seen(t *testing.T) *clusterv1.Cluster {
	t.Helper()
	b := r.birth
	b.noControlPlane = false
	witness := r.management.bear(t, r.cluster.Namespace, "witness", r.workload, b)
	if err := capikubeconfig.CreateSecret(t.Context(), r.admin, witness, quickly); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the witness to be decorated", func(ctx context.Context) error { return r.reaches(ctx, witness, r.workload) })
	return witness
}

// clusterDeleted: as long as it is there, its Secret is decorated: those who
// take it down need it. Nothing is made anew.
func clusterDeleted(t *testing.T, r *eventRow) {
	const finalizer = "example.com/hold"
	r.change(t, r.cluster, func() { r.cluster.Finalizers = []string{finalizer} })
	if err := r.admin.Delete(t.Context(), r.cluster); err != nil {
		t.Fatal(err)
	}
	r.seen(t)
	r.regenerate(t, r.cluster)
	eventually(t, "the Secret to lead to the cluster that is deleted", r.leads)
	r.deleteSecret(t)
	r.routeReady(t, r.cluster, metav1.ConditionFalse, provider.ReasonDeleting)
	r.change(t, r.cluster, func() { r.cluster.Finalizers = nil })
	eventually(t, "the Cluster to go", func(ctx context.Context) error {
		err := r.admin.Get(ctx, client.ObjectKeyFromObject(r.cluster), &clusterv1.Cluster{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v, want that it is not found", err)
		}
		return nil
	})
	if _, err := r.stored(t.Context(), r.cluster); !apierrors.IsNotFound(err) {
		t.Errorf("got %v for the Secret, want that it is not found", err)
	}
}
