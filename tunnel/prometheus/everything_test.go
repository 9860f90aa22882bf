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
	hooks.PeerFailed("server", &tunnel.Error{Op: "connect", Code: tunnel.CodeLost})

	agent := &metrics.Agent{Status: func() tunnel.AgentStatus {
		return tunnel.AgentStatus{Expires: epoch, Sessions: []tunnel.AgentLink{{RoundTrip: time.Millisecond, Since: epoch}}}
	}}
	agent.Hooks(tunnel.AgentHooks{}).Failed("server", &tunnel.Error{Op: "connect", Code: tunnel.CodePin}, time.Second)

	g := &metrics.Gateway{Status: func() gateway.Status { return gateway.Status{Ready: true} }}
	doors := g.Hooks(gateway.Hooks{})
	doors.Dialed(gateway.Request{Door: gateway.DoorConnect}, time.Second, nil)
	doors.Ended(gateway.Request{Door: gateway.DoorConnect}, gateway.Ended{Took: time.Second, Err: errAny})
	doors.Failed(&gateway.Error{Request: gateway.Request{Door: gateway.DoorSNI}, Phase: gateway.PhaseRoute})

	return append(ofPrograms(), server, agent, g)
}

// ofPrograms are the metrics of the programs and of module controllers. Tests there look
// for those that metrics.md lists.
func ofPrograms() []prometheus.Collector {
	vectors := []prometheus.Collector{
		counterOf("causeway_provider_probes_total", "Probes of a route, by the phase that failed; empty if none did.", "failed"),
		counterOf("causeway_provider_writes_total", "Writes to the management cluster.", "kind", "result"),
		histogramOf("causeway_provider_probe_duration_seconds", "Duration of probes.", "result"),
		counterOf("causeway_propagate_writes_total", "Writes of Secrets and ConfigMaps.", "kind", "result"),
		gaugeOf("causeway_propagate_installation_ok", "1 if the installation's Secret can be used; otherwise nothing is written."),
		gaugeOf("causeway_managed_clusters", "Clusters with the label causewayproject.github.io/tunnel=true, by whether an agent is connected. Only the leader has them.", "connected"),
		counterOf("causeway_managed_cluster_writes_total", "Writes of Secrets and conditions of the Clusters with the label.", "kind", "result"),
	}
	vectors = append(vectors,
		counterOf("controller_runtime_reconcile_total", "Plans of a controller, by result.", "controller", "result"),
		counterOf("controller_runtime_reconcile_errors_total", "Plans of a controller that failed.", "controller"),
		histogramOf("controller_runtime_reconcile_time_seconds", "Duration of plans and their writes, without probes.", "controller"),
		gaugeOf("workqueue_depth", "What waits in the queue of a controller, with name as the controller's.", "name"),
		gaugeOf("workqueue_longest_running_processor_seconds", "How long the work on one entry of the queue has lasted, the longest.", "name"),
		gaugeOf("leader_election_master_status", "1 while this process is the leader, 0 while it stands by, by the name of the Lease.", "name"),
	)
	return append(vectors,
		gaugeOf("causeway_certificate_expiry_timestamp_seconds", "When a certificate that the program serves with expires, by the flag of its listener; absent while it can't be read.", "listener"),
		counterOf("causeway_limit_refusals_total", "Connections that a limit has refused, by what it is for and its name in --limits.", "kind", "limit"),
		counterOf("causeway_limit_wait_seconds_total", "How long connections have waited because of bytesPerSecond, all together, by what the limit is for.", "kind"),
		counterOf("causeway_token_reviews_total", "Clients of doors whose token was looked at, by result: accepted, refused or unavailable (nobody could decide).", "result"),
		histogramOf("causeway_injector_review_duration_seconds", "Duration of answers about pods: injected, unchanged or error.", "result"),
	)
}

func counterOf(name, help string, labels ...string) prometheus.Collector {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	c.WithLabelValues(make([]string, len(labels))...)
	return c
}

func gaugeOf(name, help string, labels ...string) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	g.WithLabelValues(make([]string, len(labels))...)
	return g
}

func histogramOf(name, help string, labels ...string) prometheus.Collector {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help}, labels)
	h.WithLabelValues(make([]string, len(labels))...)
	return h
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
