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

	once    sync.Once
	vectors family.Vectors
	events  *serverEvents
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
		v := &m.vectors
		m.traffic.sessions, m.traffic.clusters = map[string]*counts{}, map[string]*clusterCounts{}
		m.events = &serverEvents{
			opened:   v.Counter(sessionsOpened),
			closed:   v.Counter(sessionsClosed, codeOK),
			refused:  v.Counter(refusals),
			enrolled: v.Counter(enrollments),
			renewed:  v.Counter(renewals),
			payloads: v.Counter(payloads, family.Results...),
			dials:    v.Counter(dials, codeOK),
			dialTook: v.Histogram(dialDuration, family.Results...),
			peers: peers{
				gone:     v.Counter(peersDisconnected, codeOK),
				failed:   v.Counter(peersFailed),
				forwards: v.Counter(forwards, codeOK),
				took:     v.Histogram(forwardDuration, family.Results...),
				held:     map[string]int{},
			},
		}
	})
	return m.events
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
	h.PeerFailed = family.Chain2(func(_ string, err error) { e.peers.failed.WithLabelValues(codeOf(err)).Inc() }, next.PeerFailed)
	return h
}

// Describe implements [prometheus.Collector].
func (m *Server) Describe(ch chan<- *prometheus.Desc) {
	family.Describe(serverFamilies, ch)
	family.Describe(clusterFamilies, ch)
}

var errServerStatus = errors.New("prometheus: field Status of the Server is required")

// Collect implements [prometheus.Collector]. It asks for the Status once.
func (m *Server) Collect(ch chan<- prometheus.Metric) {
	e := m.setup()
	if m.Status == nil {
		ch <- prometheus.NewInvalidMetric(ready.Desc(), errServerStatus)
		return
	}
	m.vectors.Collect(ch)
	send(ch, peersConnected, float64(e.peers.count()))
	m.collectStatus(m.Status(), ch)
}

// peers are the families of other replicas. Their names are not labels: a
// replica gets a new one each time it starts.
type peers struct {
	gone, failed, forwards *prometheus.CounterVec
	took                   *prometheus.HistogramVec

	mu   sync.Mutex     // guards the field below
	held map[string]int // sessions by name
}

func (p *peers) connected(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[name]++
}

func (p *peers) disconnected(name string, err error) {
	p.gone.WithLabelValues(endOf(err)).Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[name]--; p.held[name] <= 0 {
		delete(p.held, name)
	}
}

func (p *peers) forwarded(_ string, took time.Duration, err error) {
	p.forwards.WithLabelValues(codeOf(err)).Inc()
	p.took.WithLabelValues(family.Result(err)).Observe(took.Seconds())
}

func (p *peers) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}
