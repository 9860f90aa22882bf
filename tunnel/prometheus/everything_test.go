package prometheus_test

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

var errAny = errors.New("any")

// everything returns collectors of which each family has a series.
func everything() []prometheus.Collector {
	status := statusOf(2)
	server := &metrics.Server{Status: status}
	connectAll(server, status())
	hooks := server.Hooks(tunnel.Hooks{})
	hooks.Disconnected(tunnel.SessionInfo{Cluster: "gone", ID: "gone"}, errAny)
	hooks.Refused(&net.TCPAddr{}, &tunnel.Error{Op: "connect", Code: tunnel.CodeRevoked})

	agent := &metrics.Agent{Status: func() tunnel.AgentStatus {
		return tunnel.AgentStatus{Expires: epoch, Sessions: []tunnel.AgentLink{{RoundTrip: time.Millisecond, Since: epoch}}}
	}}
	agent.Hooks(tunnel.AgentHooks{}).Failed("server", &tunnel.Error{Op: "connect", Code: tunnel.CodePin}, time.Second)

	g := &metrics.Gateway{Status: func() gateway.Status { return gateway.Status{Ready: true} }}
	doors := g.Hooks(gateway.Hooks{})
	doors.Dialed(gateway.Request{Door: gateway.DoorConnect}, time.Second, nil)
	doors.Ended(gateway.Request{Door: gateway.DoorConnect}, gateway.Ended{Took: time.Second, Err: errAny})
	doors.Failed(&gateway.Error{Request: gateway.Request{Door: gateway.DoorSNI}, Phase: gateway.PhaseRoute})

	return append(ofProvider(), server, agent, g)
}

// ofProvider are the metrics of a kubeconfig provider that alerts and the dashboard use.
// Module controllers has them, and controller-runtime; a test there looks for those
// that metrics.md lists.
func ofProvider() []prometheus.Collector {
	counter := func(name, help string, labels ...string) prometheus.Collector {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		c.WithLabelValues(make([]string, len(labels))...)
		return c
	}
	gauge := func(name, help string, labels ...string) prometheus.Collector {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		g.WithLabelValues(make([]string, len(labels))...)
		return g
	}
	histogram := func(name, help string, labels ...string) prometheus.Collector {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help}, labels)
		h.WithLabelValues(make([]string, len(labels))...)
		return h
	}
	return []prometheus.Collector{
		counter("causeway_provider_probes_total", "Probes of a route, by the phase that failed; empty if none did.", "failed"),
		counter("causeway_provider_writes_total", "Writes to the management cluster.", "kind", "result"),
		histogram("causeway_provider_probe_duration_seconds", "Duration of probes.", "result"),
		counter("controller_runtime_reconcile_total", "Plans of Clusters, with controller kubeconfig-provider.", "controller", "result"),
		counter("controller_runtime_reconcile_errors_total", "Plans of Clusters that failed.", "controller"),
		histogram("controller_runtime_reconcile_time_seconds", "Duration of plans and their writes, without probes.", "controller"),
		gauge("workqueue_depth", "Clusters that wait in the queue, with name kubeconfig-provider.", "name"),
		gauge("leader_election_master_status", "1 while this provider is the leader, 0 while it stands by, by the name of the Lease.", "name"),
	}
}

// described returns the names of what the collectors describe.
func described(t testing.TB, collectors []prometheus.Collector) []string {
	t.Helper()
	ch := make(chan *prometheus.Desc, 1000)
	for _, c := range collectors {
		c.Describe(ch)
	}
	close(ch)
	var names []string
	for d := range ch {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, ok := strings.Cut(rest, `"`)
		if !ok {
			t.Fatalf("the text of a description has another form: %s", d)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestDescribedWithoutClusters(t *testing.T) {
	for _, name := range described(t, []prometheus.Collector{&metrics.Server{Status: none, WithoutClusters: true}}) {
		if strings.HasPrefix(name, "causeway_tunnel_cluster_") {
			t.Errorf("%s is described, and never there", name)
		}
	}
}

// What is described is collected, and the reverse: metrics.md, the dashboard
// and the alerts are checked against it.
func TestDescribed(t *testing.T) {
	collectors := everything()
	families, err := registryOf(t, collectors...).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		got = append(got, f.GetName())
	}
	if want := described(t, collectors); !slices.Equal(got, want) {
		t.Errorf("got families\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
