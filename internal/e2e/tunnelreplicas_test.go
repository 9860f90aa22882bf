package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/storetest"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// replicas are what two tunnel servers know of the cluster that they run in.
type replicas struct {
	bed       *bed.Bed
	admin     clientset.Interface
	namespace string
	one, two  clientset.Interface // with the rights of a ServiceAccount
}

// TestTunnelReplicas is what tunnel servers keep in a real API server, with the
// rights that the documentation says and no others.
func TestTunnelReplicas(t *testing.T) {
	r := newReplicas(t, sharedBed(t))
	t.Run("rights", r.testRights)
	t.Run("claims", func(t *testing.T) {
		storetest.Run(t, r.stores)
		storetest.Race(t, r.stores(t), 100)
	})
	t.Run("authority", r.testAuthority)
	t.Run("agent", r.testAgent)
	t.Run("endpoint slices", r.testEndpointSlices)
	t.Run("gateway", r.testGateway)
	t.Run("token flood", r.testTokenFlood)
}

func newReplicas(t *testing.T, b *bed.Bed) *replicas {
	t.Helper()
	r := &replicas{bed: b, namespace: "tunnel-replicas"}
	config := b.Kube.Config()
	config.QPS = -1
	var err error
	if r.admin, err = clientset.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{r.namespace, clientsNamespace} {
		if err := b.Kube.AddNamespace(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	r.addServer(t)
	r.one, r.two = r.client(t), r.client(t)
	return r
}

const serverAccount = "server"

// addServer makes the ServiceAccount of the servers, and its rights.
func (r *replicas) addServer(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	r.account(t, r.namespace, serverAccount)
	meta := metav1.ObjectMeta{Namespace: r.namespace, Name: "server"}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: r.namespace, Name: serverAccount}}
	_, err := r.admin.RbacV1().Roles(r.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
	}}, metav1.CreateOptions{})
	if err == nil {
		_, err = r.admin.RbacV1().RoleBindings(r.namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
			RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "server"}, Subjects: subjects}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = r.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: r.namespace},
			RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "system:auth-delegator"}, Subjects: subjects}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (r *replicas) account(t *testing.T, namespace, name string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if _, err := r.admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// client returns a client that has what the servers' ServiceAccount may do.
func (r *replicas) client(t *testing.T) clientset.Interface {
	t.Helper()
	return r.clientBy(t, r.bed.Kube.Config().Dial)
}

func (r *replicas) clientBy(t *testing.T, dial func(ctx context.Context, network, address string) (net.Conn, error)) clientset.Interface {
	t.Helper()
	config := r.bed.Kube.Config()
	c, err := clientset.NewForConfig(&rest.Config{Host: config.Host, Dial: dial, Proxy: config.Proxy, QPS: -1,
		BearerToken:     token(t, r.admin, r.namespace, serverAccount),
		TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (r *replicas) testRights(t *testing.T) {
	for what, call := range map[string]func() error{
		"Secrets elsewhere": func() error {
			_, err := r.one.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
			return err
		},
		"Pods": func() error {
			_, err := r.one.CoreV1().Pods(r.namespace).List(t.Context(), metav1.ListOptions{})
			return err
		},
	} {
		if err := call(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want that it is forbidden", what, err)
		}
	}
}

// stores returns those of two replicas, which have nothing in common but the
// API server. Each call has a prefix of its own.
func (r *replicas) stores(t *testing.T) storetest.Pair {
	prefix := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	prefix = prefix[strings.LastIndex(prefix, "-")+1:]
	return storetest.Pair{
		&kubernetes.SecretStore{Client: r.one, Namespace: r.namespace, Prefix: prefix},
		&kubernetes.SecretStore{Client: r.two, Namespace: r.namespace, Prefix: prefix},
	}
}

func (r *replicas) testAuthority(t *testing.T) {
	var wg sync.WaitGroup
	pins := make([]string, 8)
	for n := range pins {
		s := kubernetes.AuthoritySecret{Client: []clientset.Interface{r.one, r.two}[n%2], Namespace: r.namespace, Name: "once"}
		wg.Go(func() {
			a, err := s.LoadOrCreate(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			pins[n] = a.Pin()
		})
	}
	wg.Wait()
	storetest.OneWinner(t, pins)
	// Load makes none.
	s := kubernetes.AuthoritySecret{Client: r.one, Namespace: r.namespace, Name: "none"}
	if _, err := s.Load(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

// An agent enrols at one replica with the invitation of the other, which
// revokes it later; then all agents of the cluster.
func (r *replicas) testAgent(t *testing.T) {
	authority := kubernetes.AuthoritySecret{Client: r.one, Namespace: r.namespace, Name: "authority"}
	a, err := authority.LoadOrCreate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	watched := make(chan *tunnel.Authority, 10)
	during(t, func(ctx context.Context) error {
		return authority.Watch(ctx, func(a *tunnel.Authority) error { watched <- a; return nil })
	})
	if got := next(t, watched, 30*time.Second, "the authority"); got.Pin() != a.Pin() {
		t.Errorf("got the authority %s, want %s", got.Pin(), a.Pin())
	}
	store := &kubernetes.SecretStore{Client: r.one, Namespace: r.namespace}
	other := &tunnel.Server{Authority: a, Store: &kubernetes.SecretStore{Client: r.two, Namespace: r.namespace}}
	t.Cleanup(func() { other.Close() })
	address := net.JoinHostPort(bed.HubIP, tunnelPort)
	h := newHub(t, &tunnel.Server{Authority: a, Store: store}, listen(t, r.bed.Network.Hub, address))
	store.Error = func(err error) { t.Logf("the store: %v", err) }
	during(t, h.FollowStore)
	agent := func(inviter *tunnel.Server) tunnel.SessionInfo {
		t.Helper()
		inv, err := inviter.Invite(t.Context(), cluster, 0)
		if err != nil {
			t.Fatal(err)
		}
		inv.Servers = []string{address}
		startAgent(t, r.bed.Network.API, agentInput{Invitation: inv.Reveal(), Proxy: []hop{{URL: r.bed.Office.URL().String()}},
			Aliases: map[string]string{apiTarget: r.bed.Kube.Address()}})
		return h.session(30 * time.Second)
	}
	ended := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var refused *tunnel.Error
		if err := next(t, h.disconnected, 30*time.Second, "the end of the session"); !errors.As(err, &refused) || refused.Code != tunnel.CodeRevoked {
			t.Errorf("the session ended with %v, want %v", err, tunnel.CodeRevoked)
		}
	}
	info := agent(other)
	conn, err := h.dial(t.Context(), apiTarget)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	ended(other.Revoke(t.Context(), tunnel.Identity{Cluster: info.Cluster, Agent: info.Agent}))
	agent(h.Server)
	ended(other.RevokeCluster(t.Context(), cluster))
	agent(other) // a later invitation counts
}

// during runs something until the test ends; it has to end well.
func during(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (r *replicas) testEndpointSlices(t *testing.T) {
	endpoints := r.admin.DiscoveryV1().EndpointSlices(r.namespace)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "tunnel-1", Labels: map[string]string{discoveryv1.LabelServiceName: "tunnel"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("agents"), Port: ptr.To[int32](8443)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.51"}}},
	}
	slice, err := endpoints.Create(t.Context(), slice, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan []string, 10)
	replicas := kubernetes.EndpointSlices{Client: r.one, Namespace: r.namespace, Service: "tunnel", Port: "agents"}
	during(t, func(ctx context.Context) error {
		return replicas.Watch(ctx, func(zones map[string]string) { got <- slices.Sorted(maps.Keys(zones)) })
	})
	wants := func(want ...string) {
		t.Helper()
		if a := next(t, got, 30*time.Second, fmt.Sprint(want)); !reflect.DeepEqual(a, want) {
			t.Errorf("got %q, want %q", a, want)
		}
	}
	wants("192.0.2.51:8443")
	no, yes := ptr.To(false), ptr.To(true)
	slice.Endpoints = append(slice.Endpoints,
		discoveryv1.Endpoint{Addresses: []string{"192.0.2.52"}, Conditions: discoveryv1.EndpointConditions{Ready: no, Serving: yes, Terminating: yes}},
		discoveryv1.Endpoint{Addresses: []string{"192.0.2.53"}, Conditions: discoveryv1.EndpointConditions{Ready: no, Serving: no}})
	if slice, err = endpoints.Update(t.Context(), slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wants("192.0.2.51:8443", "192.0.2.52:8443")
	if err := endpoints.Delete(t.Context(), slice.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if a := next(t, got, 30*time.Second, "no replica"); len(a) != 0 {
		t.Errorf("got %q, want none", a)
	}
}
