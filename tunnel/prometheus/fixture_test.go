package prometheus_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/tunnel"
	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// statusOf returns that of a server with n clusters, each with an agent and a
// session, sorted as a Server's are; it counts what makes the values differ.
func statusOf(n int) func() tunnel.Status {
	status := tunnel.Status{Ready: true, AuthorityExpires: epoch}
	for i := range n {
		name := fmt.Sprintf("organization-%03d/cluster-%05d", i/25, i)
		status.Clusters = append(status.Clusters, tunnel.ClusterStatus{Cluster: name, Connected: true, Sessions: []tunnel.SessionInfo{{
			Cluster: name, Agent: "agent", ID: fmt.Sprint(i), Since: epoch, Expires: epoch.Add(time.Hour), Streams: i % 7,
			DialCounts: tunnel.DialCounts{Dials: uint64(i) * 3, Failed: uint64(i)}, BytesIn: uint64(i) * 100_003, BytesOut: uint64(i) * 50_007,
			RoundTrip: time.Duration(i) * time.Microsecond,
		}}})
	}
	return func() tunnel.Status { return status }
}

// connectAll tells the hooks of all sessions.
func connectAll(m *metrics.Server, status tunnel.Status) {
	hooks := m.Hooks(tunnel.Hooks{})
	for _, c := range status.Clusters {
		for _, s := range c.Sessions {
			hooks.Connected(s)
		}
	}
}
