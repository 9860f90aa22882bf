// Package metrics serves what a program counts.
package metrics

import (
	"crypto/tls"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves the collectors' metrics and those of process, in Prometheus' text. If
// process is nil, they are those of the Go runtime and of the operating system.
func Handler(process prometheus.Gatherer, own ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(own...)
	if process == nil {
		registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	}
	return promhttp.HandlerFor(prometheus.Gatherers{registry, process}, promhttp.HandlerOpts{})
}

// Mux returns a mux with /healthz, which says that the process answers, and /metrics.
func Mux(metrics http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("GET /metrics", metrics)
	return mux
}

var expiry = prometheus.NewDesc("causeway_certificate_expiry_timestamp_seconds",
	"When a certificate that the program serves with expires, by the flag of its listener; absent while it can't be read.",
	[]string{"listener"}, nil)

// GetCertificate is as in tls.Config.
type GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// Certificates collects when certificates expire, by the flag of the listener that serves
// with them.
type Certificates map[string]GetCertificate

// Describe implements [prometheus.Collector].
func (c Certificates) Describe(ch chan<- *prometheus.Desc) { ch <- expiry }

// Collect implements [prometheus.Collector].
func (c Certificates) Collect(ch chan<- prometheus.Metric) {
	for listener, get := range c {
		if pair, err := get(nil); err == nil && pair.Leaf != nil {
			ch <- prometheus.MustNewConstMetric(expiry, prometheus.GaugeValue, float64(pair.Leaf.NotAfter.Unix()), listener)
		}
	}
}
