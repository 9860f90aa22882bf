package prometheus_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

func none() tunnel.Status { return tunnel.Status{AuthorityExpires: epoch} }

func TestServerHooks(t *testing.T) {
	revoked := &tunnel.Error{Op: "renew", Code: tunnel.CodeRevoked}
	tests := []struct {
		name string
		call func(tunnel.Hooks)
		want map[string]float64
	}{
		{"nothing", func(tunnel.Hooks) {}, map[string]float64{
			"causeway_tunnel_sessions_opened_total":                          0,
			`causeway_tunnel_sessions_closed_total{code="ok"}`:               0,
			`causeway_tunnel_dials_total{code="ok"}`:                         0,
			`causeway_tunnel_dial_duration_seconds_count{result="error"}`:    0,
			`causeway_tunnel_payloads_total{result="error"}`:                 0,
			"causeway_tunnel_renewals_total":                                 0,
			"causeway_tunnel_enrollments_total":                              0,
			`causeway_tunnel_forwards_total{code="ok"}`:                      0,
			`causeway_tunnel_peer_disconnects_total{code="ok"}`:              0,
			`causeway_tunnel_forward_duration_seconds_count{result="error"}`: 0,
		}},
		{"connected", func(h tunnel.Hooks) { h.Connected(tunnel.SessionInfo{}) }, map[string]float64{"causeway_tunnel_sessions_opened_total": 1}},
		{"ended in order", func(h tunnel.Hooks) { h.Disconnected(tunnel.SessionInfo{}, nil) },
			map[string]float64{`causeway_tunnel_sessions_closed_total{code="ok"}`: 1}},
		{"lost", func(h tunnel.Hooks) { h.Disconnected(tunnel.SessionInfo{}, errAny) },
			map[string]float64{`causeway_tunnel_sessions_closed_total{code="lost"}`: 1}},
		{"expired", func(h tunnel.Hooks) {
			h.Disconnected(tunnel.SessionInfo{}, &tunnel.Error{Op: "connect", Code: tunnel.CodeCertificateExpired})
		}, map[string]float64{`causeway_tunnel_sessions_closed_total{code="certificate_expired"}`: 1}},
		{"refused", func(h tunnel.Hooks) { h.Refused(&net.TCPAddr{}, revoked) },
			map[string]float64{`causeway_tunnel_refusals_total{code="revoked",op="renew"}`: 1}},
		{"refused, of no kind", func(h tunnel.Hooks) { h.Refused(&net.TCPAddr{}, errAny) },
			map[string]float64{`causeway_tunnel_refusals_total{code="other",op="other"}`: 1}},
		{"enrolled", func(h tunnel.Hooks) { h.Enrolled(tunnel.Identity{}) }, map[string]float64{"causeway_tunnel_enrollments_total": 1}},
		{"renewed", func(h tunnel.Hooks) { h.Renewed(tunnel.Identity{}, epoch) }, map[string]float64{"causeway_tunnel_renewals_total": 1}},
		{"dialed", func(h tunnel.Hooks) { h.Dialed("a", 250*time.Millisecond, nil) }, map[string]float64{
			`causeway_tunnel_dials_total{code="ok"}`:                   1,
			`causeway_tunnel_dial_duration_seconds_sum{result="ok"}`:   .25,
			`causeway_tunnel_dial_duration_seconds_count{result="ok"}`: 1,
		}},
		{"dial failed", func(h tunnel.Hooks) {
			h.Dialed("a", 2*time.Second, fmt.Errorf("around: %w", &tunnel.Error{Op: "dial", Code: tunnel.CodeNoAgent}))
		}, map[string]float64{
			`causeway_tunnel_dials_total{code="no_agent"}`:              1,
			`causeway_tunnel_dials_total{code="ok"}`:                    0,
			`causeway_tunnel_dial_duration_seconds_sum{result="error"}`: 2,
		}},
		{"delivered", func(h tunnel.Hooks) { h.Delivered(tunnel.Identity{}, "a", nil) },
			map[string]float64{`causeway_tunnel_payloads_total{result="ok"}`: 1}},
		{"not delivered", func(h tunnel.Hooks) { h.Delivered(tunnel.Identity{}, "a", errAny) },
			map[string]float64{`causeway_tunnel_payloads_total{result="error"}`: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := &metrics.Server{Status: none}
			test.call(m.Hooks(tunnel.Hooks{}))
			expect(t, scrape(t, registryOf(t, m)), test.want)
		})
	}
}

// Of two clusters, one has a session that drains beside two that don't.
func TestServerStatus(t *testing.T) {
	status := tunnel.Status{Ready: true, Pending: 5, Waiting: 6, AuthorityExpires: epoch, Clusters: []tunnel.ClusterStatus{
		{Cluster: "a", Connected: true, Sessions: []tunnel.SessionInfo{
			{Cluster: "a", Agent: "x", ID: "1", Draining: true, Streams: 1, Expires: epoch, RoundTrip: time.Hour, BytesIn: 1, BytesOut: 10, DialCounts: tunnel.DialCounts{Dials: 3, Failed: 1}},
			{Cluster: "a", Agent: "x", ID: "2", Streams: 2, Expires: epoch.Add(2 * time.Hour), RoundTrip: 3 * time.Second, BytesIn: 2, BytesOut: 20},
			{Cluster: "a", Agent: "y", ID: "3", Streams: 4, Expires: epoch.Add(time.Hour), RoundTrip: time.Second, BytesIn: 4, BytesOut: 40},
		}},
		{Cluster: "b"},
	}}
	m := &metrics.Server{Status: func() tunnel.Status { return status }}
	connectAll(m, status)
	got := scrape(t, registryOf(t, m))
	expect(t, got, map[string]float64{
		"causeway_tunnel_ready":                                                     1,
		`causeway_tunnel_handshakes{state="pending"}`:                               5,
		`causeway_tunnel_handshakes{state="waiting"}`:                               6,
		"causeway_tunnel_authority_expiry_timestamp_seconds":                        float64(epoch.Unix()),
		`causeway_tunnel_clusters{state="connected"}`:                               1,
		`causeway_tunnel_clusters{state="disconnected"}`:                            1,
		"causeway_tunnel_agents":                                                    2,
		`causeway_tunnel_sessions{state="active"}`:                                  2,
		`causeway_tunnel_sessions{state="draining"}`:                                1,
		"causeway_tunnel_streams":                                                   7,
		"causeway_tunnel_received_bytes_total":                                      7,
		"causeway_tunnel_sent_bytes_total":                                          70,
		`causeway_tunnel_cluster_sessions{cluster="a"}`:                             2,
		`causeway_tunnel_cluster_sessions{cluster="b"}`:                             0,
		`causeway_tunnel_cluster_received_bytes_total{cluster="a"}`:                 7,
		`causeway_tunnel_cluster_sent_bytes_total{cluster="a"}`:                     70,
		`causeway_tunnel_cluster_dials_total{cluster="a"}`:                          3,
		`causeway_tunnel_cluster_dial_failures_total{cluster="a"}`:                  1,
		`causeway_tunnel_cluster_sessions_opened_total{cluster="a"}`:                3,
		`causeway_tunnel_cluster_round_trip_seconds{cluster="a"}`:                   3,
		`causeway_tunnel_cluster_certificate_expiry_timestamp_seconds{cluster="a"}`: float64(epoch.Add(time.Hour).Unix()),
		`causeway_tunnel_cluster_received_bytes_total{cluster="b"}`:                 0,
		`causeway_tunnel_cluster_sessions_opened_total{cluster="b"}`:                0,
	})
	for _, series := range []string{"round_trip_seconds", "certificate_expiry_timestamp_seconds"} {
		if v, ok := got["causeway_tunnel_cluster_"+series+`{cluster="b"}`]; ok {
			t.Errorf("%s of a cluster without a session: got %v, want none", series, v)
		}
	}
	status = tunnel.Status{}
	expect(t, scrape(t, registryOf(t, m)), map[string]float64{"causeway_tunnel_ready": 0, "causeway_tunnel_streams": 0})
}

// A cluster costs 8 series, and nothing that a caller or a stranger chooses
// costs one.
func TestServerCardinality(t *testing.T) {
	count := func(n int, disturb func(tunnel.Hooks)) int {
		status := statusOf(n)
		for i := range status().Clusters { // the first had no round trip yet
			status().Clusters[i].Sessions[0].RoundTrip = time.Second
		}
		m := &metrics.Server{Status: status}
		connectAll(m, status())
		disturb(m.Hooks(tunnel.Hooks{}))
		families, err := registryOf(t, m).Gather()
		if err != nil {
			t.Fatal(err)
		}
		n = 0
		for _, f := range families {
			n += len(f.Metric)
		}
		return n
	}
	nothing := func(tunnel.Hooks) {}
	base := count(0, nothing)
	strange := func(h tunnel.Hooks) {
		for i := range 1000 {
			name := fmt.Sprint(i)
			err := &tunnel.Error{Op: name, Cluster: name, Addr: name, Code: tunnel.Code(i + 1000), Err: errors.New(name)}
			h.Dialed(name, time.Second, err)
			h.Refused(&net.TCPAddr{Port: i}, err)
			h.Enrolled(tunnel.Identity{Cluster: name, Agent: name})
			h.Delivered(tunnel.Identity{Cluster: name, Agent: name}, name, err)
			h.Disconnected(tunnel.SessionInfo{ID: "x" + name, Cluster: name}, err)
		}
	}
	for _, test := range []struct {
		name    string
		n       int
		disturb func(tunnel.Hooks)
		want    int
	}{
		{"100 clusters", 100, nothing, base + 100*8},
		{"strangers", 0, strange, base + 3}, // code and op: other, of three families
	} {
		if got := count(test.n, test.disturb); got != test.want {
			t.Errorf("%s: got %d series, want %d", test.name, got, test.want)
		}
	}
}

// What the package's comment says of the series that no cluster has.
func TestServerSeries(t *testing.T) {
	m := &metrics.Server{Status: none}
	hooks := m.Hooks(tunnel.Hooks{})
	count := func() (all, buckets int) {
		for line := range strings.Lines(string(exposition(t, registryOf(t, m)))) {
			if !strings.HasPrefix(line, "#") {
				all++
			}
			if strings.Contains(line, "_bucket{") {
				buckets++
			}
		}
		return all, buckets
	}
	if all, buckets := count(); all != 102 || buckets != 72 {
		t.Errorf("got %d series, %d of them buckets, want 102 and 72", all, buckets)
	}
	codes := []tunnel.Code{9999}
	for code := range tunnel.Code(256) {
		if code.Name() != "" {
			codes = append(codes, code)
		}
	}
	for _, code := range codes {
		for _, op := range []string{"dial", "connect", "enroll", "renew", "push", "serve", "config", "other"} {
			hooks.Refused(&net.TCPAddr{}, &tunnel.Error{Op: op, Code: code})
		}
		err := &tunnel.Error{Code: code}
		hooks.Dialed("a", time.Second, err)
		hooks.Disconnected(tunnel.SessionInfo{}, err)
		hooks.PeerDisconnected("a", err)
		hooks.Forwarded("a", time.Second, err)
	}
	if all, _ := count(); all != 472 {
		t.Errorf("got %d series with every code, want 472", all)
	}
}

func TestServerWithoutStatus(t *testing.T) {
	_, err := registryOf(t, &metrics.Server{}).Gather()
	if err == nil || !strings.Contains(err.Error(), "field Status of the Server is required") {
		t.Errorf("got %v, want an error that names the field", err)
	}
}

// One name that is no text does not take all other series away.
func TestServerStrangeName(t *testing.T) {
	m := &metrics.Server{Status: func() tunnel.Status {
		return tunnel.Status{Clusters: []tunnel.ClusterStatus{{Cluster: "a"}, {Cluster: "a\xff"}, {Cluster: "a\xfe"}}}
	}}
	expect(t, scrape(t, registryOf(t, m)), map[string]float64{
		`causeway_tunnel_cluster_sessions{cluster="a"}`:       0,
		`causeway_tunnel_cluster_sessions{cluster=""a\xff""}`: 0,
		`causeway_tunnel_cluster_sessions{cluster=""a\xfe""}`: 0,
	})
}

func TestPeers(t *testing.T) {
	m := &metrics.Server{Status: none}
	hooks, registry := m.Hooks(tunnel.Hooks{}), registryOf(t, m)
	hooks.PeerConnected("b")
	hooks.PeerConnected("c")
	hooks.PeerConnected("c") // the old session is still there
	hooks.PeerDisconnected("c", errAny)
	hooks.PeerFailed("192.0.2.1:8443", &tunnel.Error{Code: tunnel.CodeLost})
	hooks.Forwarded("a", time.Second, nil)
	hooks.Forwarded("a", 2*time.Second, &tunnel.Error{Code: tunnel.CodeNoAgent})
	hooks.Forwarded("a", 0, errAny)
	expect(t, scrape(t, registry), map[string]float64{
		`causeway_tunnel_forwards_total{code="other"}`:                 1,
		"causeway_tunnel_peers":                                        2,
		`causeway_tunnel_peer_disconnects_total{code="lost"}`:          1,
		`causeway_tunnel_peer_failures_total{code="lost"}`:             1,
		`causeway_tunnel_forwards_total{code="ok"}`:                    1,
		`causeway_tunnel_forwards_total{code="no_agent"}`:              1,
		`causeway_tunnel_forward_duration_seconds_sum{result="ok"}`:    1,
		`causeway_tunnel_forward_duration_seconds_sum{result="error"}`: 2,
	})
	hooks.PeerDisconnected("c", nil)
	hooks.PeerDisconnected("b", nil)
	expect(t, scrape(t, registry), map[string]float64{"causeway_tunnel_peers": 0})
}
