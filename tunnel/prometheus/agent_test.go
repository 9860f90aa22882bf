package prometheus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

func TestAgentHooks(t *testing.T) {
	tests := []struct {
		name string
		call func(tunnel.AgentHooks)
		want map[string]float64
	}{
		{"nothing", func(tunnel.AgentHooks) {}, map[string]float64{
			`causeway_agent_dials_total{code="ok"}`:                   0,
			`causeway_agent_dial_duration_seconds_count{result="ok"}`: 0,
		}},
		{"failed", func(h tunnel.AgentHooks) {
			h.Failed("s", &tunnel.Error{Op: "enroll", Code: tunnel.CodeTokenUsed}, time.Second)
		}, map[string]float64{`causeway_agent_failures_total{code="token_used",op="enroll"}`: 1}},
		{"dialed", func(h tunnel.AgentHooks) { h.Dialed(time.Second, nil) }, map[string]float64{
			`causeway_agent_dials_total{code="ok"}`:                 1,
			`causeway_agent_dial_duration_seconds_sum{result="ok"}`: 1,
		}},
		{"denied", func(h tunnel.AgentHooks) { h.Dialed(time.Second, &tunnel.Error{Op: "dial", Code: tunnel.CodeDenied}) }, map[string]float64{
			`causeway_agent_dials_total{code="denied"}`:                1,
			`causeway_agent_dial_duration_seconds_sum{result="error"}`: 1,
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := &metrics.Agent{Status: func() tunnel.AgentStatus { return tunnel.AgentStatus{} }}
			test.call(m.Hooks(tunnel.AgentHooks{}))
			expect(t, scrape(t, registryOf(t, m)), test.want)
		})
	}
}

func TestAgentStatus(t *testing.T) {
	var status tunnel.AgentStatus
	m := &metrics.Agent{Status: func() tunnel.AgentStatus { return status }}
	registry := registryOf(t, m)
	got := scrape(t, registry)
	for _, absent := range []string{"causeway_agent_certificate_expiry_timestamp_seconds", "causeway_agent_round_trip_seconds"} {
		if v, ok := got[absent]; ok {
			t.Errorf("%s: got %v, want none before there is one", absent, v)
		}
	}
	expect(t, got, map[string]float64{`causeway_agent_sessions{state="active"}`: 0})
	status = tunnel.AgentStatus{Expires: epoch, Sessions: []tunnel.AgentLink{
		{Server: "s", Since: epoch, Draining: true, RoundTrip: time.Hour},
		{Server: "s", Since: epoch.Add(1), RoundTrip: time.Second},
		{Server: "z", Since: epoch, RoundTrip: 2 * time.Second},
	}}
	expect(t, scrape(t, registry), map[string]float64{
		`causeway_agent_sessions{state="active"}`:             2,
		`causeway_agent_sessions{state="draining"}`:           1,
		"causeway_agent_round_trip_seconds":                   2,
		"causeway_agent_certificate_expiry_timestamp_seconds": float64(epoch.Unix()),
	})
}

func TestAgentWithoutStatus(t *testing.T) {
	_, err := registryOf(t, &metrics.Agent{}).Gather()
	if err == nil || !strings.Contains(err.Error(), "field Status of the Agent is required") {
		t.Errorf("got %v, want an error that names the field", err)
	}
}
