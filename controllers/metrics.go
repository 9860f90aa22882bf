package controllers

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// The metrics are in controller-runtime's registry, which also has those of each controller.

// providerMetrics are the KubeconfigReconciler's.
type providerMetrics struct {
	writes    writeCounter
	probes    *prometheus.CounterVec
	probeTime *prometheus.HistogramVec
}

// newProviderMetrics registers them, or finds those of a manager before.
func newProviderMetrics() (m providerMetrics, err error) {
	m.probes = registerMetric(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "causeway_provider_probes_total", Help: "Probes of a route, by the phase that failed; empty if none did.",
	}, []string{"failed"}), &err)
	m.probeTime = registerMetric(prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "causeway_provider_probe_duration_seconds", Help: "Duration of probes.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20},
	}, []string{"result"}), &err)
	m.writes = newWriteCounter("causeway_provider_writes_total", "Writes to the management cluster.", &err, writeCreate, writeUpdate, writeDelete, conditionWrites)
	m.probes.WithLabelValues("")
	m.probeTime.WithLabelValues("ok")
	m.probeTime.WithLabelValues("error")
	return m, err
}

func (m providerMetrics) countProbe(took time.Duration, report probe.Report) {
	phase := ""
	if step := report.Failed(); step != nil {
		phase = string(step.Phase)
	}
	m.probes.WithLabelValues(phase).Inc()
	m.probeTime.WithLabelValues(resultOf(report.Err())).Observe(took.Seconds())
}

// newProxyMetrics registers those of the ProxyReconciler and the PodSecretReconciler.
func newProxyMetrics() (g prometheus.Gauge, c writeCounter, err error) {
	g = registerMetric(prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "causeway_propagate_installation_ok", Help: "1 if the installation's Secret can be used; otherwise nothing is written.",
	}), &err)
	c = newWriteCounter("causeway_propagate_writes_total", "Writes of Secrets and ConfigMaps.", &err, writeCreate, writeUpdate)
	return g, c, err
}

// clusterGauge counts Clusters.
type clusterGauge struct{ *prometheus.GaugeVec }

// newTunnelMetrics registers those of the TunnelReconciler.
func newTunnelMetrics() (g clusterGauge, c writeCounter, err error) {
	g.GaugeVec = registerMetric(prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "causeway_managed_clusters", Help: "Clusters with the label causewayproject.github.io/tunnel=true, by whether an agent is connected. Only the leader has them.",
	}, []string{"connected"}), &err)
	c = newWriteCounter("causeway_managed_cluster_writes_total", "Writes of Secrets and conditions of the Clusters with the label.", &err,
		writeCreate, writeUpdate, writeDelete, conditionWrites)
	return g, c, err
}

func (g clusterGauge) show(with, without int) {
	g.WithLabelValues("true").Set(float64(with))
	g.WithLabelValues("false").Set(float64(without))
}

// writeCounter counts a reconciler's writes.
type writeCounter struct{ *prometheus.CounterVec }

// newWriteCounter registers it, or finds that of a manager before.
func newWriteCounter(name, help string, failed *error, kinds ...string) (c writeCounter) {
	c.CounterVec = registerMetric(prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"kind", "result"}), failed)
	for _, kind := range kinds {
		c.WithLabelValues(kind, "ok")
		c.WithLabelValues(kind, "error")
	}
	return c
}

func (c writeCounter) count(kind string, err error) { c.WithLabelValues(kind, resultOf(err)).Inc() }

// registerMetric returns the collector that is registered under its name.
func registerMetric[T prometheus.Collector](collector T, failed *error) T {
	err := metrics.Registry.Register(collector)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if before, ok := already.ExistingCollector.(T); ok {
			return before
		}
	}
	*failed = errors.Join(*failed, err)
	return collector
}

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
