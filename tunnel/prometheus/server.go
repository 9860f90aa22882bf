package prometheus

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/prometheus/internal/family"
)

// Server collects the metrics of a [tunnel.Server]. Its methods are safe for
// concurrent use; its fields must not change after the first call, and it must
// not be copied.
type Server struct {
	// Status is the Server's. Required; without it a scrape fails.
	Status func() tunnel.Status
	// WithoutClusters leaves out the series that have a label cluster, and with
	// them the alerts that name a cluster. See the package's comment for what
	// they cost.
	WithoutClusters bool
	// NativeHistograms makes the histograms native ones too. They are sent only
	// to a Prometheus that asks for them.
	NativeHistograms bool

	once    sync.Once
	events  serverEvents
	traffic traffic
}

var _ prometheus.Collector = (*Server)(nil)

// serverEvents are the families that hooks fill.
type serverEvents struct {
	opened, closed, refused, enrolled, renewed, payloads, dials *prometheus.CounterVec
	dialTook                                                    *prometheus.HistogramVec
	peers                                                       peers
}

func (m *Server) setup() *serverEvents {
	m.once.Do(func() {
		m.events = serverEvents{
			opened:   sessionsOpened.Counters(),
			closed:   sessionsClosed.Counters(),
			refused:  refusals.Counters(),
			enrolled: enrollments.Counters(),
			renewed:  renewals.Counters(),
			payloads: payloads.Counters(),
			dials:    dials.Counters(),
			dialTook: dialDuration.Histograms(m.NativeHistograms),
			peers:    newPeers(m.NativeHistograms),
		}
		e := &m.events
		e.opened.WithLabelValues()
		e.enrolled.WithLabelValues()
		e.renewed.WithLabelValues()
		e.closed.WithLabelValues(codeOK)
		e.dials.WithLabelValues(codeOK)
		for _, result := range []string{"ok", "error"} {
			e.payloads.WithLabelValues(result)
			e.dialTook.WithLabelValues(result)
		}
	})
	return &m.events
}

// Hooks returns hooks that count, and then call next's. They go into the
// Server before it serves.
func (m *Server) Hooks(next tunnel.Hooks) tunnel.Hooks {
	e := m.setup()
	h := next
	h.Connected = family.Chain(func(s tunnel.SessionInfo) {
		e.opened.WithLabelValues().Inc()
		m.traffic.begin(s)
	}, next.Connected)
	h.Disconnected = family.Chain2(func(s tunnel.SessionInfo, err error) {
		e.closed.WithLabelValues(endOf(err)).Inc()
		m.traffic.end(s)
	}, next.Disconnected)
	h.Refused = family.Chain2(func(_ net.Addr, err error) {
		e.refused.WithLabelValues(opOf(err), codeOf(err)).Inc()
	}, next.Refused)
	h.Enrolled = family.Chain(func(tunnel.Identity) { e.enrolled.WithLabelValues().Inc() }, next.Enrolled)
	h.Renewed = family.Chain2(func(tunnel.Identity, time.Time) { e.renewed.WithLabelValues().Inc() }, next.Renewed)
	h.Dialed = family.Chain3(func(_ string, took time.Duration, err error) {
		// Not by cluster: that is what the caller asked for, and it may be anything.
		e.dials.WithLabelValues(codeOf(err)).Inc()
		e.dialTook.WithLabelValues(family.Result(err)).Observe(took.Seconds())
	}, next.Dialed)
	h.Delivered = family.Chain3(func(_ tunnel.Identity, _ string, err error) {
		e.payloads.WithLabelValues(family.Result(err)).Inc()
	}, next.Delivered)
	h.Forwarded = family.Chain3(e.peers.forwarded, next.Forwarded)
	h.PeerConnected = family.Chain(e.peers.connected, next.PeerConnected)
	h.PeerDisconnected = family.Chain2(e.peers.disconnected, next.PeerDisconnected)
	return h
}

// Describe implements [prometheus.Collector].
func (m *Server) Describe(ch chan<- *prometheus.Desc) {
	family.Describe(serverFamilies, ch)
	if !m.WithoutClusters {
		family.Describe(clusterFamilies, ch)
	}
}

var errServerStatus = errors.New("prometheus: field Status of the Server is required")

// Collect implements [prometheus.Collector]. It asks for the Status once.
func (m *Server) Collect(ch chan<- prometheus.Metric) {
	e := m.setup()
	if m.Status == nil {
		ch <- prometheus.NewInvalidMetric(ready.Desc(), errServerStatus)
		return
	}
	for _, c := range []prometheus.Collector{e.opened, e.closed, e.refused, e.enrolled, e.renewed, e.payloads, e.dials, e.dialTook} {
		c.Collect(ch)
	}
	e.peers.Collect(ch)
	m.collectStatus(m.Status(), ch)
}
