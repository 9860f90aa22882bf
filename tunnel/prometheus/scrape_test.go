package prometheus_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// registryOf checks, at each scrape, that what is collected was described.
func registryOf(t testing.TB, collectors ...prometheus.Collector) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		if err := registry.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	return registry
}

// scrape returns what a scrape has: values by `name{label="value"}`, and of a
// histogram _count and _sum.
func scrape(t testing.TB, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			labels := labelsOf(m)
			switch {
			case m.Counter != nil:
				values[f.GetName()+labels] = m.Counter.GetValue()
			case m.Gauge != nil:
				values[f.GetName()+labels] = m.Gauge.GetValue()
			case m.Histogram != nil:
				values[f.GetName()+"_count"+labels] = float64(m.Histogram.GetSampleCount())
				values[f.GetName()+"_sum"+labels] = m.Histogram.GetSampleSum()
			}
		}
	}
	return values
}

func labelsOf(m *dto.Metric) string {
	if len(m.Label) == 0 {
		return ""
	}
	var pairs []string
	for _, l := range m.Label {
		pairs = append(pairs, l.GetName()+`="`+l.GetValue()+`"`)
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// expect compares the series of want; others may be there.
func expect(t testing.TB, got, want map[string]float64) {
	t.Helper()
	for series, value := range want {
		if v, ok := got[series]; !ok || v != value {
			t.Errorf("%s: got %v (there: %v), want %v", series, v, ok, value)
		}
	}
}
