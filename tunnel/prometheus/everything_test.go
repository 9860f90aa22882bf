package prometheus_test

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/kubeconfig/probe"
	kubeprovider "github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
	"github.com/causewayproject/causeway/tunnel/prometheus/provider"
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

	p := &provider.Provider{}
	p.Hooks(kubeprovider.Hooks{}).Probed(types.NamespacedName{}, time.Second, probe.Report{
		Steps: []probe.Step{{Phase: probe.PhaseTCP, Err: errAny}},
	})
	return []prometheus.Collector{server, agent, g, p}
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
