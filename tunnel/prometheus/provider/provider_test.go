package provider_test

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/kubeconfig/probe"
	kubeprovider "github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel/prometheus/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errAny  = errors.New("any")
	cluster = types.NamespacedName{Namespace: "default", Name: "prod"}
)

func report(phase probe.Phase, err error) probe.Report {
	return probe.Report{Steps: []probe.Step{{Phase: phase, Err: err}}}
}

// values are the series of a family, by their labels' values.
func values(t *testing.T, m *provider.Provider) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, s := range f.Metric {
			name := f.GetName()
			for _, l := range s.Label {
				name += " " + l.GetValue()
			}
			got[name] = s.Counter.GetValue() + s.Gauge.GetValue() + s.Histogram.GetSampleSum()
		}
	}
	return got
}

func TestProvider(t *testing.T) {
	tests := []struct {
		name string
		call func(kubeprovider.Hooks)
		want map[string]float64
	}{
		{"planned", func(h kubeprovider.Hooks) { h.Planned(cluster, time.Second, nil) }, map[string]float64{
			"causeway_provider_plans_total ok": 1, "causeway_provider_plan_duration_seconds ok": 1,
		}},
		{"plan failed", func(h kubeprovider.Hooks) { h.Planned(cluster, time.Second, errAny) }, map[string]float64{
			"causeway_provider_plans_total error": 1, "causeway_provider_plan_duration_seconds error": 1,
		}},
		{"wrote", func(h kubeprovider.Hooks) { h.Wrote(cluster, kubeprovider.WriteEvent, nil) },
			map[string]float64{"causeway_provider_writes_total event ok": 1}},
		{"write failed", func(h kubeprovider.Hooks) { h.Wrote(cluster, "new", errAny) },
			map[string]float64{"causeway_provider_writes_total other error": 1}},
		{"probed", func(h kubeprovider.Hooks) { h.Probed(cluster, time.Second, report(probe.PhaseReady, nil)) }, map[string]float64{
			"causeway_provider_probes_total ": 1, "causeway_provider_probe_duration_seconds ok": 1,
		}},
		{"probe failed", func(h kubeprovider.Hooks) { h.Probed(cluster, time.Second, report(probe.PhaseProxyTLS, errAny)) }, map[string]float64{
			"causeway_provider_probes_total proxy tls": 1, "causeway_provider_probe_duration_seconds error": 1,
		}},
		{"probe of another kind", func(h kubeprovider.Hooks) { h.Probed(cluster, time.Second, report("new", errAny)) },
			map[string]float64{"causeway_provider_probes_total other": 1, "causeway_provider_probe_duration_seconds error": 1}},
		{"queued", func(h kubeprovider.Hooks) { h.Queued(5) }, map[string]float64{"causeway_provider_queue_depth": 5}},
		{"leading", func(h kubeprovider.Hooks) { h.Leading(true) }, map[string]float64{"causeway_provider_leading": 1}},
		{"leading no more", func(h kubeprovider.Hooks) { h.Leading(true); h.Leading(false) }, map[string]float64{"causeway_provider_leading": 0}},
		{"error", func(h kubeprovider.Hooks) { h.Error(errAny) }, map[string]float64{"causeway_provider_errors_total": 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var m provider.Provider
			test.call(m.Hooks(kubeprovider.Hooks{}))
			for series, got := range values(t, &m) { // what is not named is there and zero
				if want := test.want[series]; got != want {
					t.Errorf("%s: got %v, want %v", series, got, want)
				}
				delete(test.want, series)
			}
			for series := range test.want {
				t.Errorf("%s is missing", series)
			}
		})
	}
}
