package prometheus_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

// sessionsNow is the Status of a Server that had one cluster, ever.
func sessionsNow(sessions ...tunnel.SessionInfo) tunnel.Status {
	return tunnel.Status{Clusters: []tunnel.ClusterStatus{{Cluster: "a", Sessions: sessions}}}
}

// Counters do not go back, count nothing twice and lose nothing, whichever way
// a session's end and a scrape meet.
func TestTraffic(t *testing.T) {
	at := func(id string, in uint64) tunnel.SessionInfo {
		return tunnel.SessionInfo{Cluster: "a", ID: id, BytesIn: in, BytesOut: 2 * in, DialCounts: tunnel.DialCounts{Dials: 3 * in, Failed: in}}
	}
	type step struct {
		hooks  func(tunnel.Hooks)
		status tunnel.Status
		want   float64 // bytes in
	}
	begin := func(id string) func(tunnel.Hooks) { return func(h tunnel.Hooks) { h.Connected(at(id, 0)) } }
	end := func(s tunnel.SessionInfo) func(tunnel.Hooks) { return func(h tunnel.Hooks) { h.Disconnected(s, nil) } }
	tests := map[string][]step{
		"grows":                      {{begin("1"), sessionsNow(at("1", 5)), 5}, {nil, sessionsNow(at("1", 9)), 9}},
		"ended between two scrapes":  {{begin("1"), sessionsNow(at("1", 5)), 5}, {end(at("1", 8)), sessionsNow(), 8}},
		"was never scraped":          {{begin("1"), sessionsNow(), 0}, {end(at("1", 8)), sessionsNow(), 8}},
		"gone before the hook":       {{begin("1"), sessionsNow(at("1", 5)), 5}, {nil, sessionsNow(), 5}, {end(at("1", 8)), sessionsNow(), 8}},
		"status older than the hook": {{begin("1"), sessionsNow(at("1", 5)), 5}, {end(at("1", 8)), sessionsNow(at("1", 7)), 8}, {nil, sessionsNow(), 8}},
		"status before the hook":     {{nil, sessionsNow(at("1", 5)), 0}, {begin("1"), sessionsNow(at("1", 6)), 6}},
		"scrapes out of order":       {{begin("1"), sessionsNow(at("1", 9)), 9}, {nil, sessionsNow(at("1", 5)), 9}, {nil, sessionsNow(at("1", 10)), 10}},
		"two, then one": {
			{begin("1"), sessionsNow(at("1", 5)), 5}, {begin("2"), sessionsNow(at("1", 6), at("2", 10)), 16},
			{end(at("1", 7)), sessionsNow(at("2", 20)), 27},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var status tunnel.Status
			m := &metrics.Server{Status: func() tunnel.Status { return status }}
			hooks, registry := m.Hooks(tunnel.Hooks{}), registryOf(t, m)
			for i, s := range steps {
				if s.hooks != nil {
					s.hooks(hooks)
				}
				status = s.status
				got := scrape(t, registry)
				t.Logf("scrape %d", i)
				expect(t, got, map[string]float64{
					"causeway_tunnel_received_bytes_total":                      s.want,
					"causeway_tunnel_sent_bytes_total":                          2 * s.want,
					`causeway_tunnel_cluster_received_bytes_total{cluster="a"}`: s.want,
					`causeway_tunnel_cluster_sent_bytes_total{cluster="a"}`:     2 * s.want,
					`causeway_tunnel_cluster_dials_total{cluster="a"}`:          3 * s.want,
					`causeway_tunnel_cluster_dial_failures_total{cluster="a"}`:  s.want,
				})
			}
		})
	}
}

// Sessions come and go while two scrape: at the end all is counted, once.
func TestTrafficConcurrent(t *testing.T) {
	const workers, rounds = 4, 50
	var (
		mu   sync.Mutex // guards the field below
		live = map[string]tunnel.SessionInfo{}
	)
	m := &metrics.Server{Status: func() tunnel.Status {
		mu.Lock()
		defer mu.Unlock()
		var all []tunnel.SessionInfo
		for _, s := range live {
			all = append(all, s)
		}
		return sessionsNow(all...)
	}}
	hooks, registry := m.Hooks(tunnel.Hooks{}), registryOf(t, m)
	var work, scrapes sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		scrapes.Go(func() {
			for {
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	put := func(s tunnel.SessionInfo) {
		mu.Lock()
		defer mu.Unlock()
		live[s.ID] = s
	}
	for w := range workers {
		work.Go(func() {
			for i := range rounds {
				s := tunnel.SessionInfo{Cluster: "a", ID: fmt.Sprint(w, "-", i)}
				put(s)
				hooks.Connected(s)
				for range 10 {
					s.BytesIn++
					put(s)
				}
				mu.Lock()
				delete(live, s.ID)
				mu.Unlock()
				s.BytesIn++
				hooks.Disconnected(s, nil)
			}
		})
	}
	work.Wait()
	close(done)
	scrapes.Wait()
	expect(t, scrape(t, registry), map[string]float64{
		"causeway_tunnel_received_bytes_total":                      workers * rounds * 11,
		`causeway_tunnel_cluster_received_bytes_total{cluster="a"}`: workers * rounds * 11,
		"causeway_tunnel_sessions_opened_total":                     workers * rounds,
		`causeway_tunnel_sessions_closed_total{code="ok"}`:          workers * rounds,
	})
	if n := m.Tracked(); n != 0 {
		t.Errorf("got %d sessions that are remembered, want none after their end", n)
	}
}

// What was counted of a cluster goes with it, when the Server has forgotten it,
// and not before all its sessions have ended.
func TestForgottenCluster(t *testing.T) {
	var status tunnel.Status
	m := &metrics.Server{Status: func() tunnel.Status { return status }}
	hooks, registry := m.Hooks(tunnel.Hooks{}), registryOf(t, m)
	at := func(id string, in uint64) tunnel.SessionInfo {
		return tunnel.SessionInfo{Cluster: "a", ID: id, BytesIn: in}
	}
	const opened, received = `causeway_tunnel_cluster_sessions_opened_total{cluster="a"}`, "causeway_tunnel_received_bytes_total"
	for _, step := range []struct {
		name   string
		hook   func()
		status tunnel.Status
		opened float64
		total  float64
	}{
		{"began after the Status was taken", func() { hooks.Connected(at("1", 0)) }, tunnel.Status{}, 0, 0},
		{"is there", nil, sessionsNow(at("1", 5)), 1, 5},
		{"has ended", func() { hooks.Disconnected(at("1", 7), nil) }, sessionsNow(), 1, 7},
		{"is forgotten", nil, tunnel.Status{}, 0, 7},
		{"comes again", func() { hooks.Connected(at("2", 0)) }, sessionsNow(at("2", 1)), 1, 8},
	} {
		if step.hook != nil {
			step.hook()
		}
		status = step.status
		got := scrape(t, registry)
		if got[opened] != step.opened || got[received] != step.total {
			t.Errorf("%s: got %v opened and %v bytes of all, want %v and %v", step.name, got[opened], got[received], step.opened, step.total)
		}
	}
}
