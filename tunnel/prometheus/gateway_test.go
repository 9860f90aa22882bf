package prometheus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

func TestGateway(t *testing.T) {
	status := gateway.Status{Ready: true, Open: 3, Pending: 2, Waiting: 1, Total: 5, Failed: 2, BytesIn: 7, BytesOut: 11, Clients: map[string]int{"anna": 3}}
	m := &metrics.Gateway{Status: func() gateway.Status { return status }}
	hooks := m.Hooks(gateway.Hooks{})
	connect, sni := gateway.Request{Door: gateway.DoorConnect, Address: "10.0.0.1:22"}, gateway.Request{Door: gateway.DoorSNI}
	hooks.Dialed(connect, time.Second, nil)
	hooks.Dialed(sni, 2*time.Second, errAny)
	hooks.Ended(connect, gateway.Ended{Took: time.Minute})
	hooks.Ended(connect, gateway.Ended{Took: time.Minute, Err: errAny})
	hooks.Failed(&gateway.Error{Request: gateway.Request{Door: gateway.DoorSOCKS5, Client: gateway.Identity{Name: "anna"}}, Phase: gateway.PhaseAuthenticate, Err: errAny})
	hooks.Failed(&gateway.Error{Request: gateway.Request{Door: "x"}, Phase: "y"})
	hooks.Failed(errAny)
	hooks.Failed(&gateway.Error{Request: gateway.Request{Door: gateway.DoorSNI}, Phase: gateway.PhaseDial, Err: &tunnel.Error{Code: tunnel.CodeDenied}})
	hooks.Failed(&gateway.Error{Request: gateway.Request{Door: gateway.DoorSNI}, Phase: gateway.PhaseLimit, Err: limited{}})
	registry := registryOf(t, m)
	got := scrape(t, registry)
	expect(t, got, map[string]float64{
		"causeway_gateway_ready":                                                      1,
		"causeway_gateway_connections":                                                3,
		`causeway_gateway_handshakes{state="pending"}`:                                2,
		`causeway_gateway_handshakes{state="waiting"}`:                                1,
		"causeway_gateway_connections_total":                                          5,
		"causeway_gateway_received_bytes_total":                                       7,
		"causeway_gateway_sent_bytes_total":                                           11,
		`causeway_gateway_dial_duration_seconds_sum{door="connect",result="ok"}`:      1,
		`causeway_gateway_dial_duration_seconds_sum{door="sni",result="error"}`:       2,
		`causeway_gateway_connection_duration_seconds_sum{door="connect"}`:            120,
		`causeway_gateway_connection_duration_seconds_count{door="connect"}`:          2,
		`causeway_gateway_interrupted_total{door="connect"}`:                          1,
		`causeway_gateway_failures_total{door="socks5",phase="authenticate",side=""}`: 1,
		`causeway_gateway_failures_total{door="other",phase="other",side=""}`:         2,
		`causeway_gateway_failures_total{door="sni",phase="dial",side="policy"}`:      1,
		`causeway_gateway_failures_total{door="sni",phase="limit",side="policy"}`:     1,
	})
	for series := range got {
		if strings.Contains(series, "anna") || strings.Contains(series, "10.0.0.1") {
			t.Errorf("got %s: a client chooses that", series)
		}
	}
	status.Ready = false
	expect(t, scrape(t, registry), map[string]float64{"causeway_gateway_ready": 0})
}

type limited struct{ error }

func (limited) RetryAfter() time.Duration { return 0 }

func TestGatewayWithoutStatus(t *testing.T) {
	_, err := registryOf(t, &metrics.Gateway{}).Gather()
	if err == nil || !strings.Contains(err.Error(), "field Status of the Gateway is required") {
		t.Errorf("got %v, want an error that names the field", err)
	}
}
