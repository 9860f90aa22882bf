package injector

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

// reviewMetrics count what API servers ask. No label has a value that they choose.
type reviewMetrics struct {
	total *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

func newReviewMetrics() reviewMetrics {
	m := reviewMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "causeway_injector_reviews_total",
			Help: "Questions of API servers about pods, by answer: injected, unchanged or error.",
		}, []string{"result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "causeway_injector_review_duration_seconds", Help: "Duration of answers about pods.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"result"}),
	}
	for _, result := range []string{"injected", "unchanged", "error"} {
		m.total.WithLabelValues(result)
		m.took.WithLabelValues(result)
	}
	return m
}

func (m *reviewMetrics) count(r webhook.Review) {
	result := "unchanged"
	switch {
	case r.Err != nil:
		result = "error"
	case len(r.Injected) > 0:
		result = "injected"
	}
	m.total.WithLabelValues(result).Inc()
	m.took.WithLabelValues(result).Observe(r.Took.Seconds())
}

// Describe implements [prometheus.Collector].
func (m *reviewMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.total.Describe(ch)
	m.took.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (m *reviewMetrics) Collect(ch chan<- prometheus.Metric) {
	m.total.Collect(ch)
	m.took.Collect(ch)
}
