package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// An eventRow is a Cluster that something happens to, with a proxy of its own.
type eventRow struct {
	*management
	workload
	cluster *clusterv1.Cluster
	proxy   *privateProxy
	birth   birth

	agent      *bed.Running // of a tunnel of its own
	agentInput agentInput
}

// events is the table of what may happen to a Cluster.
var events = []struct {
	name string
	prep func(*testing.T, *eventRow) // before the Cluster is born
	run  func(*testing.T, *eventRow)
	own  bool // without a control plane
	gone bool // the user's keys went with the Secret
}{
	{name: "ca-changed", prep: ownKube, run: caChanged},
	{name: "endpoint-moved", prep: movable, run: endpointMoved},
	{name: "password-changed", run: passwordChanged},
	{name: "proxy-down", run: proxyDown},
	{name: "tunnel-down", prep: ownTunnel, run: tunnelDown},
	{name: "secret-deleted", run: secretDeleted, gone: true},
	{name: "own-secret-deleted", run: ownSecretDeleted, own: true, gone: true},
	{name: "secret-corrupted", run: secretCorrupted},
	{name: "cluster-paused", run: clusterPaused},
	{name: "cluster-deleted", run: clusterDeleted, own: true, gone: true},
}

// testEvents has each of them happen, to a Cluster of its own. What a user has
// put into the Secret is there afterwards.
func (m *management) testEvents(t *testing.T) {
	t.Parallel()
	var namespaces []string
	for _, e := range events {
		namespaces = append(namespaces, e.name)
	}
	program := m.startProvider(t, providerInput{Namespaces: namespaces, Config: provider.Config{Interval: 6 * time.Second}})
	t.Run("rows", func(t *testing.T) {
		for _, e := range events {
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				row := &eventRow{management: m, workload: m.dante, birth: birth{noControlPlane: e.own}}
				row.workload.route = kubeconfig.Route{}
				if e.prep != nil {
					e.prep(t, row)
				}
				row.bear(t, e.name)
				e.run(t, row)
				if !e.gone {
					row.wantForeign(t)
				}
			})
		}
	})
	if err := program.Ended(); err != nil {
		t.Error(err)
	}
	m.scan(t, program, namespaces)
}

// bear makes the Cluster and waits until its Secret leads there.
func (r *eventRow) bear(t *testing.T, name string) {
	t.Helper()
	if r.route.Tunnel == nil {
		r.proxy = newPrivateProxy(t, r.bed)
		r.route.ProxyURL = r.proxy.url()
	}
	annotations := r.routeBy(t, name, "route", r.route)
	for k, v := range r.birth.annotations {
		annotations[k] = v
	}
	r.birth.annotations = annotations
	r.cluster = r.management.bear(t, name, "prod", r.workload, r.birth)
	if !r.birth.noControlPlane {
		if err := capikubeconfig.CreateSecret(t.Context(), r.admin, r.cluster, quickly); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the Secret to lead to the cluster", r.leads)
	r.addForeign(t)
	r.routeReady(t, r.cluster, metav1.ConditionTrue)
}

func (r *eventRow) leads(ctx context.Context) error { return r.reaches(ctx, r.cluster, r.workload) }

// The keys that a user has put into the Secret, and into the kubeconfig.
const (
	foreignKey   = "token-file"
	foreignField = "example.com/mine"
	foreignText  = "\nx-mine: {colour: blue}\n"
)

func (r *eventRow) addForeign(t *testing.T) {
	t.Helper()
	s, err := r.stored(t.Context(), r.cluster)
	if err != nil {
		t.Fatal(err)
	}
	r.change(t, s, func() {
		s.Data[foreignKey] = []byte("mine")
		s.Data[kubeconfig.SecretKey] = append(s.Data[kubeconfig.SecretKey], foreignText...)
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, foreignField, "mine")
		metav1.SetMetaDataLabel(&s.ObjectMeta, foreignField, "mine")
	})
}

// wantForeign wants them to be there. A kubeconfig that was replaced as a whole
// has none.
func (r *eventRow) wantForeign(t *testing.T) {
	t.Helper()
	s, err := r.stored(t.Context(), r.cluster)
	if err != nil {
		t.Fatal(err)
	}
	if string(s.Data[foreignKey]) != "mine" || s.Annotations[foreignField] != "mine" || s.Labels[foreignField] != "mine" {
		t.Errorf("of the user's keys there are the data %q, annotations %v, labels %v", s.Data[foreignKey], s.Annotations, s.Labels)
	}
	if !strings.HasSuffix(t.Name(), "/secret-corrupted") && !strings.Contains(string(s.Data[kubeconfig.SecretKey]), "x-mine:") {
		t.Error("the user's key in the kubeconfig is gone")
	}
}
