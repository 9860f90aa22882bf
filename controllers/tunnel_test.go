package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// tunnelBed is an API server, and a reconciler with a server of the tunnel that does what
// the test says.
type tunnelBed struct {
	*bed
	r       *controllers.TunnelReconciler
	changed chan struct{}
	server  *tunnel.Server // makes the tokens

	mu       sync.Mutex // guards the fields below
	invited  map[string][]tunnel.Invitation
	revoked  map[string]int
	keep     time.Duration       // of the last EndCluster
	agents   map[string][]string // connected, by cluster
	silent   string              // why another replica does not answer
	lastErr  string
	payloads map[string]string
	looks    int
	fail     error // of InviteAgents and EndCluster
	ahead    time.Duration
}

func newTunnelBed(t *testing.T) *tunnelBed {
	authority, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	b := &tunnelBed{
		server: &tunnel.Server{Authority: authority, Store: &tunnel.MemoryStore{}},
		bed:    newBed(t), changed: make(chan struct{}, 1),
		invited: map[string][]tunnel.Invitation{}, revoked: map[string]int{}, agents: map[string][]string{}, payloads: map[string]string{},
	}
	b.r = &controllers.TunnelReconciler{
		Server: b, Tickets: new(gateway.Tickets), Records: "system/tunnel", Servers: []string{"tunnel.example.com:8443"},
		Gateway: "http://gateway.system.svc:3128", Environment: []string{"CAUSEWAY_PROXY=http://u:p@proxy.example.com:3128"},
		Image: "registry.example.com/agent:1", Changed: b.changed, SetPayload: b.setPayload,
	}
	b.r.SetNow(b.clock)
	return b
}

func (b *tunnelBed) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Add(b.ahead)
}

func (b *tunnelBed) change(f func()) {
	b.mu.Lock()
	f()
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func (b *tunnelBed) read(f func() bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return f()
}

// connect says which agents of a cluster are connected.
func (b *tunnelBed) connect(cluster string, agents ...string) {
	b.change(func() { b.agents[cluster] = agents })
}

func (b *tunnelBed) InviteAgents(ctx context.Context, cluster string, agents int, life time.Duration) (tunnel.Invitation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return tunnel.Invitation{}, b.fail
	}
	i, err := b.server.Invite(ctx, cluster, life)
	if err != nil {
		return i, err
	}
	i.Expires = time.Now().Add(b.ahead + life).UTC().Truncate(time.Second)
	b.invited[cluster] = append(b.invited[cluster], i)
	return i, nil
}

func (b *tunnelBed) Invitations(_ context.Context, cluster string) ([]tunnel.Invitation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.invited[cluster]), nil
}

func (b *tunnelBed) LastRevoked(string) time.Time { return time.Time{} }

func (b *tunnelBed) EndedClusters(context.Context) ([]string, error) { return nil, nil }

func (b *tunnelBed) EndCluster(_ context.Context, cluster string, keep time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	b.revoked[cluster]++
	b.keep = keep
	return nil
}

func (b *tunnelBed) setPayload(_ context.Context, cluster string, p tunnel.Payload) error {
	b.mu.Lock()
	b.payloads[cluster] = p.Name + "=" + string(p.Data)
	b.mu.Unlock()
	b.Touch()
	return nil
}

func (b *tunnelBed) Fleet(context.Context) []tunnel.ReplicaStatus {
	defer b.Touch()
	b.mu.Lock()
	defer b.mu.Unlock()
	self := tunnel.ReplicaStatus{Name: "one", Self: true, Connected: true, Status: tunnel.Status{Ready: true}}
	for cluster, agents := range b.agents {
		c := tunnel.ClusterStatus{Cluster: cluster, Connected: len(agents) > 0, LastError: b.lastErr}
		for _, a := range agents {
			c.Sessions = append(c.Sessions, tunnel.SessionInfo{Cluster: cluster, Agent: a, Expires: time.Now().Add(b.ahead + 7*24*time.Hour)})
		}
		self.Status.Clusters = append(self.Status.Clusters, c)
	}
	b.looks++
	other := tunnel.ReplicaStatus{Name: "two", Connected: b.silent == "", LastError: b.silent}
	return []tunnel.ReplicaStatus{self, other}
}

// runTunnel starts a manager with the reconciler.
func (b *tunnelBed) runTunnel(t *testing.T) (stop func() error) {
	t.Helper()
	return b.runManager(t, b.tunnelManager(t))
}

func (b *tunnelBed) tunnelManager(t *testing.T) ctrl.Manager {
	t.Helper()
	opts := b.opts
	opts.Cache = controllers.CacheOptions()
	mgr, err := ctrl.NewManager(b.Config(), opts)
	if err == nil {
		err = b.r.SetupWithManager(t.Context(), mgr, controller.Options{MaxConcurrentReconciles: 4})
	}
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

// labelled makes a Cluster with the label.
func (b *tunnelBed) labelled(name string) apitest.Key {
	c := cluster("a", name, nil)
	c["metadata"].(map[string]any)["labels"] = map[string]any{provider.LabelTunnel: "true"}
	b.Set("clusters", c)
	return apitest.Named("clusters", "a", name)
}

func agentSecret(name string) apitest.Key {
	return apitest.Named("secrets", "a", name+provider.SuffixTunnelAgent)
}

func routeOf(name string) apitest.Key {
	return apitest.Named("secrets", "a", name+provider.SuffixTunnelRoute)
}

// tunnelCondition returns "status reason: message", without the time.
func (b *tunnelBed) tunnelCondition(key apitest.Key) string {
	u := b.Get(key)
	if u == nil {
		return ""
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range list {
		if c := item.(map[string]any); c["type"] == provider.ConditionTunnel {
			_, message, _ := strings.Cut(fmt.Sprint(c["message"]), "; ")
			return fmt.Sprintf("%v %v: %s", c["status"], c["reason"], message)
		}
	}
	return ""
}

func (b *tunnelBed) untilCondition(key apitest.Key, want string) {
	b.t.Helper()
	defer func() {
		if b.t.Failed() {
			b.t.Logf("got %s", b.tunnelCondition(key))
		}
	}()
	b.Until(b.t, "condition "+want, func() bool { return strings.HasPrefix(b.tunnelCondition(key), want) })
}

// TestTunnel goes from the label to an agent and back.
func TestTunnel(t *testing.T) {
	b := newTunnelBed(t)
	b.Set("clusters", cluster("a", "other", nil))
	one := b.labelled("one")
	b.runTunnel(t)
	b.untilCondition(one, "False NeverConnected: no agent has connected yet: the Secret one-tunnel-agent")
	b.Until(t, "the Secrets", func() bool { return b.Get(agentSecret("one")) != nil && b.Get(routeOf("one")) != nil })
	i, err := tunnel.ParseInvitation(b.value(agentSecret("one"), provider.KeyAgentInvitation))
	if err != nil || i.Cluster != "a/one" || !slices.Equal(i.Servers, b.r.Servers) {
		t.Errorf("got %v, %v", i, err)
	}
	if text := b.value(agentSecret("one"), provider.KeyAgentInvitation); !strings.Contains(text, "\nCAUSEWAY_PROXY=http://u:p@proxy.example.com:3128\n") {
		t.Errorf("the invitation lacks the proxy:\n%s", text)
	}
	credentials := gateway.Credentials{User: b.value(routeOf("one"), provider.KeyUsername), Password: b.value(routeOf("one"), provider.KeyPassword)}
	if id, err := b.r.Tickets.Authenticate(t.Context(), credentials); err != nil || id.Cluster != "a/one" || credentials.User != "a/one" {
		t.Errorf("got %v, %v of the ticket of %s", id, err, credentials.User)
	}
	if got := b.value(routeOf("one"), provider.KeyGateway); got != b.r.Gateway {
		t.Errorf("got gateway %q", got)
	}
	for _, key := range []apitest.Key{agentSecret("one"), routeOf("one")} {
		owners := b.Get(key).GetOwnerReferences()
		if len(owners) != 1 || owners[0].UID != b.Get(one).GetUID() || b.Get(key).GetLabels()["cluster.x-k8s.io/cluster-name"] != "one" {
			t.Errorf("%s: got owners %v, labels %v", key.Name, owners, b.Get(key).GetLabels())
		}
	}

	began := time.Now()
	b.connect("a/one", "x")
	b.untilCondition(one, "True Connected: one agent is connected")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("connected after %v, want 2 s at most", took)
	}

	b.Change(one, func(u *unstructured.Unstructured) { u.SetLabels(nil) })
	b.Until(t, "the end", func() bool {
		return b.Get(agentSecret("one")) == nil && b.Get(routeOf("one")) == nil && b.tunnelCondition(one) == "" && len(b.records()) == 0
	})
	b.read(func() bool {
		if len(b.revoked) != 1 || b.revoked["a/one"] != 1 {
			t.Errorf("got %v revoked, want a/one once", b.revoked)
		}
		return true
	})
	if got := b.tunnelCondition(apitest.Named("clusters", "a", "other")); got != "" || b.Get(agentSecret("other")) != nil {
		t.Errorf("got %q of a Cluster without the label", got)
	}
}

// records returns the names of Clusters that are recorded.
func (b *tunnelBed) records() (names []string) {
	for _, u := range b.List("secrets") {
		if u.GetNamespace() == "system" {
			cluster, _, _ := unstructured.NestedString(u.Object, "data", "cluster")
			names = append(names, cluster) // in base64: it may be gone by now
		}
	}
	return names
}
