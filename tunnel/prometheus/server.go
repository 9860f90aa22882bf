package prometheus

import (
	"errors"
	"maps"
	"net"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

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
	next.Connected = family.Chain(func(s tunnel.SessionInfo) {
		e.opened.WithLabelValues().Inc()
		m.traffic.begin(s)
	}, next.Connected)
	next.Disconnected = family.Chain2(func(s tunnel.SessionInfo, err error) {
		e.closed.WithLabelValues(endOf(err)).Inc()
		m.traffic.end(s)
	}, next.Disconnected)
	next.Refused = family.Chain2(func(_ net.Addr, err error) {
		e.refused.WithLabelValues(opOf(err), codeOf(err)).Inc()
	}, next.Refused)
	next.Enrolled = family.Chain(func(tunnel.Identity) { e.enrolled.WithLabelValues().Inc() }, next.Enrolled)
	next.Renewed = family.Chain2(func(tunnel.Identity, time.Time) { e.renewed.WithLabelValues().Inc() }, next.Renewed)
	next.Dialed = family.Chain3(func(_ string, took time.Duration, err error) {
		// Not by cluster: that is what the caller asked for, and it may be anything.
		e.dials.WithLabelValues(codeOf(err)).Inc()
		e.dialTook.WithLabelValues(family.Result(err)).Observe(took.Seconds())
	}, next.Dialed)
	next.Delivered = family.Chain3(func(_ tunnel.Identity, _ string, err error) {
		e.payloads.WithLabelValues(family.Result(err)).Inc()
	}, next.Delivered)
	next.Forwarded = family.Chain3(e.peers.forwarded, next.Forwarded)
	next.PeerConnected = family.Chain(e.peers.connected, next.PeerConnected)
	next.PeerDisconnected = family.Chain2(e.peers.disconnected, next.PeerDisconnected)
	next.PeerFailed = family.Chain2(func(_ string, err error) { e.peers.failed.WithLabelValues(codeOf(err)).Inc() }, next.PeerFailed)
	return next
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

// collectStatus sends the metrics of a Status.
func (m *Server) collectStatus(status tunnel.Status, ch chan<- prometheus.Metric) {
	var connected, active, draining, open int
	held := map[agentKey]bool{}
	for i := range status.Clusters {
		c := &status.Clusters[i]
		if c.Connected {
			connected++
		}
		sum := summaryOf(c, held)
		active += sum.active
		draining += len(c.Sessions) - sum.active
		open += sum.streams
		ever := m.traffic.see(c)
		sendCluster(c.Cluster, sum, ever, ch)
	}
	m.traffic.forget(&status)
	total := m.traffic.all()
	send(ch, ready, oneIf(status.Ready))
	send(ch, handshakes, float64(status.Pending), "pending")
	send(ch, handshakes, float64(status.Waiting), "waiting")
	if !status.AuthorityExpires.IsZero() {
		send(ch, authorityEnds, float64(status.AuthorityExpires.UnixMilli())/1000)
	}
	send(ch, clusters, float64(connected), "connected")
	send(ch, clusters, float64(len(status.Clusters)-connected), "disconnected")
	send(ch, agents, float64(len(held)))
	send(ch, sessions, float64(active), "active")
	send(ch, sessions, float64(draining), "draining")
	send(ch, streams, float64(open))
	send(ch, receivedBytes, float64(total.in))
	send(ch, sentBytes, float64(total.out))
}

// summary sums up the sessions of a cluster.
type summary struct {
	active, streams int
	roundTrip       time.Duration // the slowest; zero: none was measured
	expires         time.Time     // the first; zero: there is no session
}

// agentKey tells agents apart: replicas of one are several.
type agentKey struct{ cluster, agent, replica string }

// summaryOf sums the sessions up, and adds their agents to held.
func summaryOf(c *tunnel.ClusterStatus, held map[agentKey]bool) summary {
	var sum summary
	for i := range c.Sessions {
		s := &c.Sessions[i]
		held[agentKey{s.Cluster, s.Agent, s.Replica}] = true
		sum.streams += s.Streams
		if s.Draining {
			continue
		}
		sum.active++
		sum.roundTrip = max(sum.roundTrip, s.RoundTrip)
		if sum.expires.IsZero() || s.Expires.Before(sum.expires) {
			sum.expires = s.Expires
		}
	}
	return sum
}

// clusterDescs are those of clusterFamilies: made anew for each cluster they would cost more
// than all the rest.
var clusterDescs = func() (descs []*prometheus.Desc) {
	for _, f := range clusterFamilies {
		descs = append(descs, f.Desc())
	}
	return descs
}()

// sendCluster sends the series of one cluster.
func sendCluster(name string, sum summary, ever counts, ch chan<- prometheus.Metric) {
	if !utf8.ValidString(name) { // it would fail the whole scrape
		name = strconv.Quote(name)
	}
	values := [...]float64{ // in the order of clusterFamilies
		float64(sum.active), float64(ever.in), float64(ever.out), float64(ever.dials),
		float64(ever.failed), float64(ever.opened), sum.roundTrip.Seconds(), float64(sum.expires.UnixMilli()) / 1000,
	}
	for i, f := range clusterFamilies {
		if f.Name == clusterRoundTrip.Name && sum.roundTrip == 0 || f.Name == clusterExpires.Name && sum.expires.IsZero() {
			continue
		}
		ch <- prometheus.MustNewConstMetric(clusterDescs[i], valueType(f), values[i], name)
	}
}

func valueType(f family.Family) prometheus.ValueType {
	if f.Kind == family.Counter {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

// send sends one value of a family that is no histogram.
func send(ch chan<- prometheus.Metric, f family.Family, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(f.Desc(), valueType(f), value, labels...)
}

// oneIf is the value of a gauge that says yes or no.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// counts are counters, which only grow.
type counts struct {
	in, out, dials, failed, opened uint64
}

func (c *counts) add(d counts) {
	c.in += d.in
	c.out += d.out
	c.dials += d.dials
	c.failed += d.failed
	c.opened += d.opened
}

// grown adds what s has counted since the last call to c, and returns it. Two scrapes at
// the same time may come in the wrong order: a value below c is old.
func (c *counts) grown(s tunnel.SessionInfo) (d counts) {
	up := func(c *uint64, now uint64) (by uint64) {
		if now > *c {
			by, *c = now-*c, now
		}
		return by
	}
	d.in, d.out = up(&c.in, s.BytesIn), up(&c.out, s.BytesOut)
	d.dials, d.failed = up(&c.dials, s.Dials), up(&c.failed, s.Failed)
	return d
}

// traffic sums up the counters of a Server's sessions, which end with the sessions, into
// counters that never go back.
type traffic struct {
	mu       sync.Mutex         // guards the fields below
	sessions map[string]*counts // by ID, as last seen, between the two hooks
	clusters map[string]*clusterCounts
	total    counts
}

type clusterCounts struct {
	counts
	live int // sessions between the two hooks
}

func (t *traffic) clusterLocked(name string) *clusterCounts {
	c := t.clusters[name]
	if c == nil {
		c = &clusterCounts{}
		t.clusters[name] = c
	}
	return c
}

func (t *traffic) begin(s tunnel.SessionInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions[s.ID] = &counts{}
	c := t.clusterLocked(s.Cluster)
	c.opened++
	c.live++
}

func (t *traffic) end(s tunnel.SessionInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seeLocked(s)
	delete(t.sessions, s.ID)
	t.clusterLocked(s.Cluster).live--
}

// forget drops the counts of clusters that the Server has forgotten.
func (t *traffic) forget(status *tunnel.Status) {
	known := make(map[string]bool, len(status.Clusters))
	for i := range status.Clusters {
		known[status.Clusters[i].Cluster] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.clusters, func(name string, c *clusterCounts) bool { return c.live == 0 && !known[name] })
}

// seeLocked ignores a session that has not begun yet, or has ended: a Status that was
// taken before the hook may still have it.
func (t *traffic) seeLocked(s tunnel.SessionInfo) {
	if last := t.sessions[s.ID]; last != nil {
		d := last.grown(s)
		t.clusterLocked(s.Cluster).add(d)
		t.total.add(d)
	}
}

// see adds what the sessions of a cluster have counted, and returns the counters of the
// cluster.
func (t *traffic) see(c *tunnel.ClusterStatus) counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range c.Sessions {
		t.seeLocked(c.Sessions[i])
	}
	return t.clusterLocked(c.Cluster).counts
}

func (t *traffic) all() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}
