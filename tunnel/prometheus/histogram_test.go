package prometheus_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

// Histograms have buckets from 0.1 ms to 30 s, or to a day.
func TestHistograms(t *testing.T) {
	server := &metrics.Server{Status: none}
	server.Hooks(tunnel.Hooks{})
	agent := &metrics.Agent{Status: func() tunnel.AgentStatus { return tunnel.AgentStatus{} }}
	doors := &metrics.Gateway{Status: func() gateway.Status { return gateway.Status{} }}
	hooks := doors.Hooks(gateway.Hooks{})
	hooks.Dialed(gateway.Request{}, 1, nil)
	hooks.Ended(gateway.Request{}, gateway.Ended{Took: 1})
	n := 0
	for _, c := range []prometheus.Collector{server, agent, doors} {
		families, err := registryOf(t, c).Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetType() == dto.MetricType_HISTOGRAM {
				n++
				checkHistogram(t, f)
			}
		}
	}
	if n != 5 {
		t.Errorf("got %d histograms, want 5", n)
	}
}

func checkHistogram(t *testing.T, f *dto.MetricFamily) {
	t.Helper()
	h := f.Metric[0].Histogram
	first, last := h.Bucket[0].GetUpperBound(), h.Bucket[len(h.Bucket)-1].GetUpperBound()
	wantFirst, wantLast := 0.0001, 30.0
	if f.GetName() == "causeway_gateway_connection_duration_seconds" {
		wantFirst, wantLast = 0.01, 86400
	}
	if first != wantFirst || last != wantLast {
		t.Errorf("%s: got buckets from %v to %v, want %v to %v", f.GetName(), first, last, wantFirst, wantLast)
	}
}
