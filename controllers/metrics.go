package controllers

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// providerMetrics are the KubeconfigReconciler's. They are in controller-runtime's
// registry, which also has the metrics of each controller.
type providerMetrics struct {
	probes, writes *prometheus.CounterVec
	probeTime      *prometheus.HistogramVec
}

// newProviderMetrics registers them, or finds those of a manager before.
func newProviderMetrics() (*providerMetrics, error) {
	m := &providerMetrics{
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "causeway_provider_probes_total", Help: "Probes of a route, by the phase that failed; empty if none did.",
		}, []string{"failed"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "causeway_provider_writes_total", Help: "Writes to the management cluster.",
		}, []string{"kind", "result"}),
		probeTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "causeway_provider_probe_duration_seconds", Help: "Duration of probes.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20},
		}, []string{"result"}),
	}
	var err error
	m.probes = registerMetric(m.probes, &err)
	m.writes = registerMetric(m.writes, &err)
	m.probeTime = registerMetric(m.probeTime, &err)
	m.probes.WithLabelValues("")
	for _, result := range []string{"ok", "error"} {
		m.probeTime.WithLabelValues(result)
		for _, kind := range []string{writeCreate, writeUpdate, writeDelete, conditionWrites} {
			m.writes.WithLabelValues(kind, result)
		}
	}
	return m, err
}

// proxyMetrics are the ProxyReconciler's.
type proxyMetrics struct {
	installation prometheus.Gauge
	writes       *prometheus.CounterVec
}

// newProxyMetrics registers them, or finds those of a manager before.
func newProxyMetrics() (*proxyMetrics, error) {
	m := &proxyMetrics{
		installation: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "causeway_propagate_installation_ok", Help: "1 if the installation's Secret can be used; otherwise nothing is written.",
		}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "causeway_propagate_writes_total", Help: "Writes of Secrets and ConfigMaps.",
		}, []string{"kind", "result"}),
	}
	var err error
	m.installation = registerMetric(m.installation, &err)
	m.writes = registerMetric(m.writes, &err)
	for _, result := range []string{"ok", "error"} {
		m.writes.WithLabelValues(writeCreate, result)
		m.writes.WithLabelValues(writeUpdate, result)
	}
	return m, err
}

// tunnelMetrics are the TunnelReconciler's.
type tunnelMetrics struct {
	clusters *prometheus.GaugeVec
	writes   *prometheus.CounterVec
}

// newTunnelMetrics registers them, or finds those of a manager before.
func newTunnelMetrics() (*tunnelMetrics, error) {
	m := &tunnelMetrics{
		clusters: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "causeway_managed_clusters", Help: "Clusters with the label causewayproject.github.io/tunnel=true, by whether an agent is connected. Only the leader has them.",
		}, []string{"connected"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "causeway_managed_cluster_writes_total", Help: "Writes of Secrets and conditions of the Clusters with the label.",
		}, []string{"kind", "result"}),
	}
	var err error
	m.clusters = registerMetric(m.clusters, &err)
	m.writes = registerMetric(m.writes, &err)
	for _, kind := range []string{writeCreate, writeUpdate, writeDelete, conditionWrites} {
		m.writes.WithLabelValues(kind, "ok")
		m.writes.WithLabelValues(kind, "error")
	}
	return m, err
}

func (m *tunnelMetrics) showClusters(with, without int) {
	m.clusters.WithLabelValues("true").Set(float64(with))
	m.clusters.WithLabelValues("false").Set(float64(without))
}

func (m *tunnelMetrics) countWrite(kind string, err error) {
	m.writes.WithLabelValues(kind, resultOf(err)).Inc()
}

// registerMetric returns the collector that is registered under its name.
func registerMetric[T prometheus.Collector](collector T, failed *error) T {
	err := metrics.Registry.Register(collector)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if before, ok := already.ExistingCollector.(T); ok {
			return before
		}
	}
	*failed = errors.Join(*failed, err)
	return collector
}

func (m *providerMetrics) countWrite(kind string, err error) {
	m.writes.WithLabelValues(kind, resultOf(err)).Inc()
}

func (m *providerMetrics) countProbe(took time.Duration, report probe.Report) {
	phase := ""
	if step := report.Failed(); step != nil {
		phase = string(step.Phase)
	}
	m.probes.WithLabelValues(phase).Inc()
	m.probeTime.WithLabelValues(resultOf(report.Err())).Observe(took.Seconds())
}

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
