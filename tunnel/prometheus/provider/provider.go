// Package provider collects Prometheus metrics of a kubeconfig provider. It is a package
// of its own because it links client-go, which package prometheus does not need.
//
//	metrics := &provider.Provider{}
//	options.Hooks = metrics.Hooks(options.Hooks)
//	registry.MustRegister(metrics)
//
// No label names a Cluster: its condition RouteReady and its Events say what is wrong
// with it, for as long as it exists.
package provider

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/kubeconfig/probe"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/tunnel/prometheus/internal/family"
)

var (
	plans      = family.Family{Name: "causeway_provider_plans_total", Kind: family.Counter, Help: "Clusters that were planned.", Labels: []string{"result"}}
	planTook   = family.Family{Name: "causeway_provider_plan_duration_seconds", Kind: family.Histogram, Help: "Duration of the plan of a Cluster, without its probe.", Labels: []string{"result"}, Buckets: family.Quick()}
	writes     = family.Family{Name: "causeway_provider_writes_total", Kind: family.Counter, Help: "Writes to the management cluster.", Labels: []string{"kind", "result"}}
	probes     = family.Family{Name: "causeway_provider_probes_total", Kind: family.Counter, Help: "Probes of a route, by the phase that failed; empty if none did.", Labels: []string{"failed"}}
	probeTook  = family.Family{Name: "causeway_provider_probe_duration_seconds", Kind: family.Histogram, Help: "Duration of probes.", Labels: []string{"result"}, Buckets: family.Quick()}
	queueDepth = family.Family{Name: "causeway_provider_queue_depth", Kind: family.Gauge, Help: "Clusters that wait in the queue."}
	leading    = family.Family{Name: "causeway_provider_leading", Kind: family.Gauge, Help: "1 while this provider is the leader, 0 while it stands by."}
	faults     = family.Family{Name: "causeway_provider_errors_total", Kind: family.Counter, Help: "Errors other than those of plans and writes, such as a watch that fails."}

	families = []family.Family{plans, planTook, writes, probes, probeTook, queueDepth, leading, faults}
)

// Provider collects the metrics of a [provider.Provider]. The zero Provider
// works. Its methods are safe for concurrent use; its field must not change
// after the first call, and it must not be copied.
type Provider struct {
	// NativeHistograms makes the histograms native ones too. They are sent only
	// to a Prometheus that asks for them.
	NativeHistograms bool

	once                          sync.Once
	vectors                       family.Vectors
	plans, writes, probes, faults *prometheus.CounterVec
	planTook, probeTook           *prometheus.HistogramVec
	queueDepth, leading           *prometheus.GaugeVec
}

var _ prometheus.Collector = (*Provider)(nil)

func (m *Provider) setup() {
	m.once.Do(func() {
		v := &m.vectors
		v.NativeHistograms = m.NativeHistograms
		m.plans, m.planTook = v.Counter(plans, family.Results...), v.Histogram(planTook, family.Results...)
		m.probes, m.probeTook = v.Counter(probes, ""), v.Histogram(probeTook, family.Results...)
		m.queueDepth, m.leading, m.faults = v.Gauge(queueDepth), v.Gauge(leading), v.Counter(faults)
		m.writes = v.Counter(writes)
		for _, result := range family.Results {
			for _, kind := range writeKinds {
				m.writes.WithLabelValues(string(kind), result)
			}
		}
	})
}

// Hooks returns hooks that count, and then call next's. They go into
// [provider.Options].
func (m *Provider) Hooks(next provider.Hooks) provider.Hooks {
	m.setup()
	h := next
	h.Planned = family.Chain3(func(_ types.NamespacedName, took time.Duration, err error) {
		m.plans.WithLabelValues(family.Result(err)).Inc()
		m.planTook.WithLabelValues(family.Result(err)).Observe(took.Seconds())
	}, next.Planned)
	h.Wrote = family.Chain3(func(_ types.NamespacedName, kind provider.Write, err error) {
		m.writes.WithLabelValues(kindOf(kind), family.Result(err)).Inc()
	}, next.Wrote)
	h.Probed = family.Chain3(func(_ types.NamespacedName, took time.Duration, report probe.Report) {
		m.probes.WithLabelValues(phaseOf(report.Failed())).Inc()
		m.probeTook.WithLabelValues(family.Result(report.Err())).Observe(took.Seconds())
	}, next.Probed)
	h.Queued = family.Chain(func(depth int) { m.queueDepth.WithLabelValues().Set(float64(depth)) }, next.Queued)
	h.Leading = family.Chain(func(on bool) {
		n := 0.0
		if on {
			n = 1
		}
		m.leading.WithLabelValues().Set(n)
	}, next.Leading)
	h.Error = family.Chain(func(error) { m.faults.WithLabelValues().Inc() }, next.Error)
	return h
}

var writeKinds = []provider.Write{
	provider.WriteCreate, provider.WriteUpdate, provider.WriteDelete, provider.WriteEvent, provider.WriteCondition,
}

func kindOf(kind provider.Write) string {
	if slices.Contains(writeKinds, kind) {
		return string(kind)
	}
	return "other"
}

// phaseOf returns the phase that failed; empty if none did.
func phaseOf(failed *probe.Step) string {
	if failed == nil {
		return ""
	}
	switch failed.Phase {
	case probe.PhaseConfig, probe.PhaseDNS, probe.PhaseTCP, probe.PhaseProxyTLS, probe.PhaseProxyAuth,
		probe.PhaseConnect, probe.PhaseTLS, probe.PhaseAuth, probe.PhaseReady:
		return string(failed.Phase)
	}
	return "other"
}

// Describe implements [prometheus.Collector].
func (m *Provider) Describe(ch chan<- *prometheus.Desc) { family.Describe(families, ch) }

// Collect implements [prometheus.Collector].
func (m *Provider) Collect(ch chan<- prometheus.Metric) {
	m.setup()
	m.vectors.Collect(ch)
}
