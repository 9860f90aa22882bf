package prometheus

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/prometheus/internal/family"
)

// Agent collects the metrics of a [tunnel.Agent]. Its methods are safe for
// concurrent use; its fields must not change after the first call, and it must
// not be copied.
type Agent struct {
	// Status is the Agent's. Required; without it a scrape fails.
	Status func() tunnel.AgentStatus

	once            sync.Once
	vectors         family.Vectors
	failures, dials *prometheus.CounterVec
	dialTook        *prometheus.HistogramVec
}

var _ prometheus.Collector = (*Agent)(nil)

func (m *Agent) setup() {
	m.once.Do(func() {
		v := &m.vectors
		m.failures, m.dials = v.Counter(agentFailures), v.Counter(agentDials, codeOK)
		m.dialTook = v.Histogram(agentDialTook, family.Results...)
	})
}

// Hooks returns hooks that count, and then call next's. They go into the Agent
// before it runs.
func (m *Agent) Hooks(next tunnel.AgentHooks) tunnel.AgentHooks {
	m.setup()
	next.Failed = family.Chain3(func(_ string, err error, _ time.Duration) {
		m.failures.WithLabelValues(opOf(err), codeOf(err)).Inc()
	}, next.Failed)
	next.Dialed = family.Chain2(func(took time.Duration, err error) {
		m.dials.WithLabelValues(codeOf(err)).Inc()
		m.dialTook.WithLabelValues(family.Result(err)).Observe(took.Seconds())
	}, next.Dialed)
	return next
}

// Describe implements [prometheus.Collector].
func (m *Agent) Describe(ch chan<- *prometheus.Desc) { family.Describe(agentFamilies, ch) }

var errAgentStatus = errors.New("prometheus: field Status of the Agent is required")

// Collect implements [prometheus.Collector]. It asks for the Status once.
func (m *Agent) Collect(ch chan<- prometheus.Metric) {
	m.setup()
	if m.Status == nil {
		ch <- prometheus.NewInvalidMetric(agentSessions.Desc(), errAgentStatus)
		return
	}
	m.vectors.Collect(ch)
	status := m.Status()
	active, slowest := 0, time.Duration(0)
	for _, l := range status.Sessions {
		if !l.Draining {
			active++
			slowest = max(slowest, l.RoundTrip)
		}
	}
	send(ch, agentSessions, float64(active), "active")
	send(ch, agentSessions, float64(len(status.Sessions)-active), "draining")
	if slowest > 0 {
		send(ch, agentRoundTrip, slowest.Seconds())
	}
	if !status.Expires.IsZero() {
		send(ch, agentExpires, float64(status.Expires.UnixMilli())/1000)
	}
}
