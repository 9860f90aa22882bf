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

	once                                               sync.Once
	vectors                                            family.Vectors
	opened, closed, failures, enrolled, renewed, dials *prometheus.CounterVec
	dialTook                                           *prometheus.HistogramVec

	// scrape makes one Status after the other, so that a session that is missing in
	// one does not come back in the next. Hooks do not lock it.
	scrape  sync.Mutex // guards the fields below
	seen    map[linkKey]counts
	in, out uint64
}

var _ prometheus.Collector = (*Agent)(nil)

// linkKey tells the sessions of an Agent apart.
type linkKey struct {
	server string
	since  time.Time
}

func (m *Agent) setup() {
	m.once.Do(func() {
		v := &m.vectors
		m.opened, m.closed, m.failures = v.Counter(agentOpened), v.Counter(agentClosed, codeOK), v.Counter(agentFailures)
		m.enrolled, m.renewed, m.dials = v.Counter(agentEnrolled), v.Counter(agentRenewed), v.Counter(agentDials, codeOK)
		m.dialTook = v.Histogram(agentDialTook, family.Results...)
	})
}

// Hooks returns hooks that count, and then call next's. They go into the Agent
// before it runs.
func (m *Agent) Hooks(next tunnel.AgentHooks) tunnel.AgentHooks {
	m.setup()
	h := next
	h.Connected = family.Chain2(func(string, tunnel.Identity) { m.opened.WithLabelValues().Inc() }, next.Connected)
	h.Disconnected = family.Chain2(func(_ string, err error) { m.closed.WithLabelValues(endOf(err)).Inc() }, next.Disconnected)
	h.Failed = family.Chain3(func(_ string, err error, _ time.Duration) {
		m.failures.WithLabelValues(opOf(err), codeOf(err)).Inc()
	}, next.Failed)
	h.Enrolled = family.Chain2(func(tunnel.Identity, time.Time) { m.enrolled.WithLabelValues().Inc() }, next.Enrolled)
	h.Renewed = family.Chain2(func(tunnel.Identity, time.Time) { m.renewed.WithLabelValues().Inc() }, next.Renewed)
	h.Dialed = family.Chain2(func(took time.Duration, err error) {
		m.dials.WithLabelValues(codeOf(err)).Inc()
		m.dialTook.WithLabelValues(family.Result(err)).Observe(took.Seconds())
	}, next.Dialed)
	return h
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
	status, in, out := m.look()
	active, open, slowest := 0, 0, time.Duration(0)
	for _, l := range status.Sessions {
		open += l.Streams
		if !l.Draining {
			active++
			slowest = max(slowest, l.RoundTrip)
		}
	}
	send(ch, agentSessions, float64(active), "active")
	send(ch, agentSessions, float64(len(status.Sessions)-active), "draining")
	send(ch, agentStreams, float64(open))
	send(ch, agentReceived, float64(in))
	send(ch, agentSent, float64(out))
	if slowest > 0 {
		send(ch, agentRoundTrip, slowest.Seconds())
	}
	if !status.Expires.IsZero() {
		send(ch, agentExpires, float64(status.Expires.UnixMilli())/1000)
	}
}

// look returns a Status, and the bytes of all sessions that were ever seen.
func (m *Agent) look() (status tunnel.AgentStatus, in, out uint64) {
	m.scrape.Lock()
	defer m.scrape.Unlock()
	status = m.Status()
	now := map[linkKey]counts{}
	for _, l := range status.Sessions {
		key := linkKey{l.Server, l.Since}
		last := m.seen[key]
		d := last.grown(tunnel.SessionInfo{BytesIn: l.BytesIn, BytesOut: l.BytesOut})
		m.in, m.out = m.in+d.in, m.out+d.out
		now[key] = last
	}
	m.seen = now
	return status, m.in, m.out
}
