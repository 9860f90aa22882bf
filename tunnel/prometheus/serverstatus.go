package prometheus

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/prometheus/internal/family"
)

// collectStatus sends what a Status says.
func (m *Server) collectStatus(status tunnel.Status, ch chan<- prometheus.Metric) {
	var connected, active, draining, open int
	held := map[tunnel.Identity]bool{}
	per := newClusterSeries()
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
		if !m.WithoutClusters {
			per.send(c.Cluster, sum, ever, ch)
		}
	}
	m.traffic.forget(&status)
	total := m.traffic.all()
	one := 0
	if status.Ready {
		one = 1
	}
	send(ch, ready, float64(one))
	send(ch, clusters, float64(connected), "connected")
	send(ch, clusters, float64(len(status.Clusters)-connected), "disconnected")
	send(ch, agents, float64(len(held)))
	send(ch, sessions, float64(active), "active")
	send(ch, sessions, float64(draining), "draining")
	send(ch, streams, float64(open))
	send(ch, receivedBytes, float64(total.in))
	send(ch, sentBytes, float64(total.out))
}

// summary is what the sessions of a cluster have in common.
type summary struct {
	active, streams int
	roundTrip       time.Duration // the slowest; zero: none was measured
	expires         time.Time     // the first; zero: there is no session
}

// summaryOf sums the sessions up, and adds their agents to held.
func summaryOf(c *tunnel.ClusterStatus, held map[tunnel.Identity]bool) summary {
	var sum summary
	for i := range c.Sessions {
		s := &c.Sessions[i]
		held[tunnel.Identity{Cluster: s.Cluster, Agent: s.Agent}] = true
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

// clusterSeries sends the series of one cluster after the other.
type clusterSeries struct {
	descs []*prometheus.Desc // of clusterFamilies
}

func newClusterSeries() *clusterSeries {
	var p clusterSeries
	for _, f := range clusterFamilies {
		p.descs = append(p.descs, f.Desc())
	}
	return &p
}

var clusterLabel = "cluster"

func (p *clusterSeries) send(name string, sum summary, ever counts, ch chan<- prometheus.Metric) {
	if !utf8.ValidString(name) { // it would fail the whole scrape
		name = strconv.Quote(name)
	}
	labels := []*dto.LabelPair{{Name: &clusterLabel, Value: &name}}
	values := [...]float64{ // in the order of clusterFamilies
		float64(sum.active), float64(ever.in), float64(ever.out), float64(ever.dials),
		float64(ever.failed), float64(ever.opened), sum.roundTrip.Seconds(), float64(sum.expires.UnixMilli()) / 1000,
	}
	samples := make([]sample, len(values))
	for i, f := range clusterFamilies {
		if f.Name == clusterRoundTrip.Name && sum.roundTrip == 0 || f.Name == clusterExpires.Name && sum.expires.IsZero() {
			continue
		}
		samples[i] = sample{desc: p.descs[i], labels: labels, value: values[i], counter: f.Kind == family.Counter}
		ch <- &samples[i]
	}
}

// sample is a metric whose labels are made once for all series of a cluster:
// client_golang's own is checked and built anew for each.
type sample struct {
	desc    *prometheus.Desc
	labels  []*dto.LabelPair // shared; as long as its capacity, so that append copies it
	value   float64
	counter bool
}

func (s *sample) Desc() *prometheus.Desc { return s.desc }

func (s *sample) Write(out *dto.Metric) error {
	out.Label = s.labels
	if s.counter {
		out.Counter = &dto.Counter{Value: &s.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}

// send sends one value of a family that is no histogram.
func send(ch chan<- prometheus.Metric, f family.Family, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if f.Kind == family.Counter {
		kind = prometheus.CounterValue
	}
	ch <- prometheus.MustNewConstMetric(f.Desc(), kind, value, labels...)
}
