package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

const (
	tunnelController = "tunnel-clusters" // names the controller, and what it writes

	// invitationLife is how long an invitation can be used. After half of it there is a new
	// one. invitationAgents is how many machines can use it.
	invitationLife   = 24 * time.Hour
	invitationAgents = 16
	// defaultMostEnded is how many tunnels of Clusters that are gone a namespace may have
	// in the server's namespace, before it gets no new one.
	defaultMostEnded = 1000

	// labelTunnelRecord is on the Secrets that record which Clusters have invitations. Its
	// value is the prefix of TunnelReconciler.Records.
	labelTunnelRecord = provider.Prefix + "tunnel-record"
)

// TunnelServer is what a TunnelReconciler needs of the tunnel's server. A *tunnel.Server is
// one.
type TunnelServer interface {
	// InviteAgents returns an invitation for several agents of the cluster.
	InviteAgents(ctx context.Context, cluster string, agents int, life time.Duration) (tunnel.Invitation, error)
	// Invitations returns those of the cluster that can still be used.
	Invitations(ctx context.Context, cluster string) ([]tunnel.Invitation, error)
	// EndCluster ends all agents and invitations of the cluster. keep is how long tickets
	// for it can be valid.
	EndCluster(ctx context.Context, cluster string, keep time.Duration) error
	// LastRevoked returns when all agents and invitations of the cluster were revoked last, if
	// that is known here; it does not block.
	LastRevoked(cluster string) time.Time
	// EndedClusters returns the clusters of which something is kept, since EndCluster.
	EndedClusters(ctx context.Context) ([]string, error)
	// Fleet returns the state of all replicas.
	Fleet(ctx context.Context) []tunnel.ReplicaStatus
}

// TunnelReconciler has the machines of Clusters come with an agent of the tunnel, and shows
// in each Cluster whether one is connected. It looks after the Clusters that have the label
// [provider.LabelTunnel] with the value "true". The name of a Cluster in the tunnel is
// namespace/name. Beside each Cluster it keeps the Secrets with
// [provider.SuffixTunnelAgent] and [provider.SuffixTunnelRoute], and in its status the
// condition [provider.ConditionTunnel].
//
// When the label or the Cluster is gone, all agents of the cluster are revoked, and both
// Secrets are deleted. No finalizer holds up a Cluster: Secrets in the namespace of Records
// say what is to be ended. While a Cluster is being deleted, its agents stay: others may
// have to reach it. Nothing is done for a paused Cluster. If it vanishes while it is
// paused, as with clusterctl move, its agents stay for a day, or until it is back.
//
// Its fields are read by SetupWithManager.
type TunnelReconciler struct {
	// Server is the tunnel's server in this process. Required.
	Server TunnelServer
	// Tickets sign the passwords of the Secrets with provider.SuffixTunnelRoute. Required.
	Tickets *gateway.Tickets
	// SetPayload sets what the agents of a cluster are handed, at all replicas; it writes
	// nothing if that is set already, and nothing for empty Data that was never set. A nil
	// Data forgets it: there is no agent any more. If SetPayload is nil,
	// provider.AnnotationTunnelSSH is ignored.
	SetPayload func(ctx context.Context, cluster string, p tunnel.Payload) error
	// Records is NAMESPACE/PREFIX of the Secrets that record which Clusters have
	// invitations. Required. The namespace is the server's own.
	Records string

	// Servers are the addresses that agents connect to. Required.
	Servers []string
	// TicketLife is that of the passwords in the Secrets with provider.SuffixTunnelRoute. After
	// half of it there is a new one, and the former one is valid until its end. Zero means a year:
	// Cluster API does not read a kubeconfig again while its connection lives, so a password must
	// outlive that. EndCluster ends all of them.
	TicketLife time.Duration
	// Gateway is the URL of the proxy that leads into the tunnel, for the Secrets with
	// provider.SuffixTunnelRoute. If "", the kubeconfig provider has to know it.
	Gateway string
	// Environment are more lines NAME=value of an agent's invitation, such as
	// CAUSEWAY_PROXY. They may hold a password. May be empty.
	Environment []string
	// Image is that of causeway-agent in static pods. If "", there is no static pod.
	Image string

	// Namespaces are those whose Clusters are looked after. If empty, all. The manager's
	// cache must have them, see [CacheOptions].
	Namespaces []string
	// Changed has the reconciler ask Server.Fleet, at once or half a second after it asked
	// before, when something was received. It asks every two seconds anyway. May be nil.
	Changed <-chan struct{}
	// Refused are errors of Server.Hooks.Refused, of which Events tell if they name a
	// Cluster: its token or certificate has proven it. May be nil.
	Refused <-chan error

	now       func() time.Time // in tests
	mostEnded int              // in tests
}

// Check returns an error that names a field that can't be used. SetupWithManager calls it.
func (r *TunnelReconciler) Check() error {
	namespace, prefix, ok := strings.Cut(r.Records, "/")
	switch {
	case r.Server == nil:
		return errors.New("controllers: TunnelReconciler.Server is required")
	case r.Tickets == nil:
		return errors.New("controllers: TunnelReconciler.Tickets is required")
	case len(r.Servers) == 0:
		return errors.New("controllers: TunnelReconciler.Servers is required")
	case r.TicketLife != 0 && r.TicketLife < time.Second:
		return errors.New("controllers: TunnelReconciler.TicketLife: want a second or more, or zero")
	case !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Label(prefix)) > 0:
		return errors.New("controllers: TunnelReconciler.Records: want NAMESPACE/PREFIX")
	}
	if r.Gateway != "" {
		settings := provider.Settings{Gateway: r.Gateway}
		if err := (provider.Config{Defaults: settings}).Check(); err != nil {
			return fmt.Errorf("controllers: TunnelReconciler.Gateway: %w", errors.Unwrap(err))
		}
	}
	for i, line := range r.Environment {
		if name, _, ok := strings.Cut(line, "="); !ok || name == "" || strings.ContainsFunc(line, unicode.IsControl) {
			return fmt.Errorf("controllers: TunnelReconciler.Environment[%d]: want NAME=value in one line", i)
		}
	}
	return nil
}

// SetupWithManager adds the controller to the manager. Without Clusters that the API server
// serves, the error is [ErrNoCRD]. Where opts has no RateLimiter, the controller waits 100
// ms after a first failure, and a minute at most. Only the leader asks Server.Fleet and
// writes.
func (r *TunnelReconciler) SetupWithManager(ctx context.Context, mgr manager.Manager, opts controller.Options) error {
	if err := r.Check(); err != nil {
		return err
	}
	kind, err := servedClusters(mgr.GetRESTMapper())
	if err != nil {
		return err
	}
	t := &tunnelRun{
		TunnelReconciler: *r, mgr: mgr, kind: kind, live: mgr.GetAPIReader(),
		recordsAt: secretName(r.Records), records: ownCaches{}, keys: ownCaches{},
		states: &tunnelStates{clusterMap: clusterMap[tunnelState]{clusters: map[types.NamespacedName]*tunnelState{}}, shown: map[types.NamespacedName]shownCluster{}},
		events: &eventLog{recorder: mgr.GetEventRecorderFor(tunnelController)},
	}
	t.mostEnded, t.TicketLife = cmp.Or(r.mostEnded, defaultMostEnded), cmp.Or(r.TicketLife, defaultTicketLife)
	if t.now == nil {
		t.now = time.Now
	}
	var counts writeCounter
	if t.connected, counts, err = newTunnelMetrics(); err != nil {
		return fmt.Errorf("controllers: metrics: %w", err)
	}
	t.writer = newObjectWriter(mgr.GetClient(), tunnelController, counts)
	if err := t.addCaches(ctx); err != nil {
		return fmt.Errorf("controllers: caches of Clusters and Secrets: %w", err)
	}
	if err := addController(mgr, tunnelController, opts, t.reconcileCluster, t.listSources()...); err != nil {
		return fmt.Errorf("controllers: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(t.followFleet))
}

// tunnelRun is a TunnelReconciler in a manager.
type tunnelRun struct {
	TunnelReconciler
	mgr    manager.Manager
	kind   *unstructured.Unstructured // an empty Cluster
	live   client.Reader              // the API server
	writer *objectWriter

	recordsAt types.NamespacedName // Records: a namespace, and the prefix of names
	records   ownCaches            // the Secrets with labelTunnelRecord
	keys      ownCaches            // the Secrets with SSH keys

	states    *tunnelStates
	events    *eventLog
	connected clusterGauge
}

// addCaches adds the caches beside the manager's.
func (t *tunnelRun) addCaches(ctx context.Context) error {
	records := labels.SelectorFromSet(labels.Set{labelTunnelRecord: t.recordsAt.Name})
	errs := []error{
		fillCache(ctx, t.mgr.GetCache(), t.kind, &corev1.Secret{}),
		t.records.addFilled(ctx, t.mgr, t.recordsAt.Namespace, map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: records}}),
	}
	if t.SetPayload != nil {
		sshType := fields.OneTermEqualSelector("type", string(corev1.SecretTypeSSHAuth))
		for _, ns := range scopesOf(t.Namespaces) {
			errs = append(errs, t.keys.addFilled(ctx, t.mgr, ns, map[client.Object]cache.ByObject{&corev1.Secret{}: {Field: sshType, Transform: trimData}}))
		}
	}
	return errors.Join(errs...)
}

// listSources are what leads to a look at a Cluster, beside the state of its agents.
func (t *tunnelRun) listSources() []source.Source {
	all := []source.Source{
		source.Func(t.states.noteStart),
		source.Kind(t.mgr.GetCache(), t.kind.DeepCopy(), &handler.TypedEnqueueRequestForObject[*unstructured.Unstructured]{}, t.states.noteClusters(), changedCluster()),
		source.Kind(t.mgr.GetCache(), &corev1.Secret{}, clustersOf[*corev1.Secret](provider.SuffixTunnelAgent, provider.SuffixTunnelRoute)),
	}
	for _, c := range t.records {
		all = append(all, source.Kind(c, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, s *corev1.Secret) []reconcile.Request {
			key := secretName(string(s.Data[recordCluster]))
			if key == (types.NamespacedName{}) {
				return nil
			}
			return []reconcile.Request{{NamespacedName: key}}
		})))
	}
	for _, c := range t.keys {
		all = append(all, source.Kind(c, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, s *corev1.Secret) []reconcile.Request {
			return t.states.findClusters(func(_ types.NamespacedName, c *tunnelState) bool { return c.key == nameOf(s) })
		})))
	}
	return all
}
