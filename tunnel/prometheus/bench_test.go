package prometheus_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

// BenchmarkScrape is one scrape over HTTP's handler, without compression: of a
// server with 5,000 clusters that have an agent with a session each.
func BenchmarkScrape(b *testing.B) {
	status := statusOf(5000)
	m := &metrics.Server{Status: status}
	connectAll(m, status())
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true})
	b.ReportAllocs()
	var w counter
	for b.Loop() {
		w = counter{header: http.Header{}}
		handler.ServeHTTP(&w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if w.code >= 300 {
			b.Fatalf("got status %d", w.code)
		}
	}
	b.ReportMetric(float64(w.size), "B/scrape")
}

// BenchmarkCollect is the collector's part of a scrape.
func BenchmarkCollect(b *testing.B) {
	status := statusOf(5000)
	m := &metrics.Server{Status: status}
	connectAll(m, status())
	ch := make(chan prometheus.Metric, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		m.Collect(ch)
		for len(ch) > 0 {
			<-ch
		}
	}
}

// counter is a ResponseWriter that keeps nothing.
type counter struct {
	header     http.Header
	code, size int
}

func (w *counter) Header() http.Header { return w.header }

func (w *counter) WriteHeader(code int) { w.code = code }

func (w *counter) Write(p []byte) (int, error) {
	w.size += len(p)
	return len(p), nil
}
