package injector

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

// newReviewMetrics counts what API servers ask. No label has a value that they choose.
func newReviewMetrics() *prometheus.HistogramVec {
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "causeway_injector_review_duration_seconds", Help: "Duration of answers about pods: injected, unchanged or error.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"result"})
	for _, result := range []string{"injected", "unchanged", "error"} {
		took.WithLabelValues(result)
	}
	return took
}

func resultOf(r webhook.Review) string {
	switch {
	case r.Err != nil:
		return "error"
	case len(r.Injected) > 0:
		return "injected"
	}
	return "unchanged"
}
