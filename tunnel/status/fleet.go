package status

import (
	"math"
	"slices"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

const (
	// keepCluster is how long a cluster is remembered after the last replica has
	// forgotten it: perhaps only the replica that held it is gone.
	keepCluster = 24 * time.Hour
	// maxInterval is the longest time between two samples that makes a rate.
	maxInterval = time.Minute
)

// fleetRecord keeps the last sample of the fleet and the points before it.
type fleetRecord struct {
	at       time.Time // the last sample's; zero before the first one
	began    time.Time
	counted  samplePoint // the first that the figures of dials have
	step     time.Duration
	replicas []replica
	clusters map[string]*clusterRecord
	refusals []tunnel.Refusals
	failures []tunnel.DialFailures // the latest first; a cluster may be none of clusters
	total    clusterRecord         // all clusters together
}

// samplePoint is when a point begins, and its step.
type samplePoint struct {
	from time.Time
	step int64
}

// replica is a replica at the last sample.
type replica struct {
	tunnel.ReplicaStatus // without the clusters
	clusters             int
	sessions, streams    int
	in, out              float32
}

// clusterRecord keeps the last sample of a cluster and the points before it.
type clusterRecord struct {
	name          string
	state         state
	sessions      []session // now
	seen          []session // those of the last sample that had any
	seenAt        time.Time
	known         bool // a replica has said that it had an agent
	ended         []endedSession
	errors        []lastError
	lastSeen      time.Time // when a replica knew of it, or a dial for it failed
	lastReachable time.Time // when it could be dialed; zero: never as far as was seen
	current       point
	history       history
}

type session struct {
	replica string
	// draining: the session, or its replica, takes no new streams.
	draining bool
	tunnel.SessionInfo
}

// agentText is the agent's name, with that of its replica.
func (s *session) agentText() string {
	if s.Replica == "" {
		return s.Agent
	}
	return s.Agent + ", " + s.Replica
}

type lastError struct{ replica, text string }

// endedSession is the last session of a replica that has none of the cluster any more.
type endedSession struct {
	replica string
	tunnel.EndedSession
}

// addSample takes what Fleet returned.
func (b *fleetRecord) addSample(at time.Time, step time.Duration, fleet []tunnel.ReplicaStatus) {
	if b.clusters == nil {
		b.clusters, b.began, b.counted.from = map[string]*clusterRecord{}, at, at
	}
	elapsed := at.Sub(b.at)
	if !b.at.IsZero() && elapsed > max(maxInterval, 2*step) { // nobody looked: what was before is not continued
		b.counted = samplePoint{b.at, int64(at.Sub(b.began) / step)}
	}
	answered := map[string]bool{} // at the sample before
	for _, r := range b.replicas {
		answered[r.Name] = r.Connected
	}
	was := b.beginSample()
	b.at, b.step = at, step
	for i := range fleet {
		b.addReplica(&fleet[i])
	}
	slices.SortStableFunc(b.replicas, compareReplicas)
	b.failures, b.refusals = mergeFailures(fleet), mergeRefusals(fleet)
	b.addFailingClusters()
	b.total.current = point{roundTrip: unknown}
	replicas, takers := map[string]*replica{}, 0
	for i := range b.replicas {
		r := &b.replicas[i]
		replicas[r.Name] = r
		if r.Connected && !r.Draining {
			takers++
		}
	}
	for name, c := range b.clusters {
		if at.Sub(c.lastSeen) > keepCluster {
			delete(b.clusters, name)
			continue
		}
		if len(c.sessions) > 0 {
			c.seen, c.seenAt = c.sessions, at
		}
		c.updatePoint(was[name], elapsed, answered, replicas)
		c.history.addPoint(b.lastStep(), c.current)
		c.state = b.classify(c, takers)
		if c.state.isReachable() {
			c.lastReachable = at
		}
		b.addToTotal(c.current)
	}
	if elapsed > maxInterval {
		b.total.current.in, b.total.current.out = unknown, unknown
		for _, r := range replicas {
			r.in, r.out = unknown, unknown
		}
	}
	b.total.history.addPoint(b.lastStep(), b.total.current)
}

// beginSample begins a new sample and returns the sessions of the last.
func (b *fleetRecord) beginSample() map[string][]session {
	was := make(map[string][]session, len(b.clusters))
	for name, c := range b.clusters {
		was[name] = c.sessions
		c.sessions, c.ended, c.errors = nil, nil, nil
	}
	b.replicas = nil
	return was
}

// lastStep is the step of the last sample.
func (b *fleetRecord) lastStep() int64 { return int64(b.at.Sub(b.began) / b.step) }

func (b *fleetRecord) addReplica(r *tunnel.ReplicaStatus) {
	mine := replica{ReplicaStatus: *r}
	mine.Connected = r.Connected || r.Self
	mine.Status = tunnel.Status{}
	if mine.Connected {
		for i := range r.Status.Clusters {
			b.addCluster(&mine, &r.Status.Clusters[i])
		}
	}
	b.replicas = append(b.replicas, mine)
}

func (b *fleetRecord) addCluster(r *replica, status *tunnel.ClusterStatus) {
	c := b.recordOf(status.Cluster)
	c.lastSeen, c.known = b.at, true
	for _, info := range status.Sessions {
		c.sessions = append(c.sessions, session{replica: r.Name, draining: info.Draining || r.Draining, SessionInfo: info})
		r.sessions++
		r.streams += info.Streams
	}
	if len(status.Sessions) > 0 {
		r.clusters++
	}
	if status.Last != nil {
		c.ended = append(c.ended, endedSession{r.Name, *status.Last})
	}
	if status.LastError != "" {
		c.errors = append(c.errors, lastError{r.Name, status.LastError})
	}
}

// addFailingClusters adds the clusters that dials have failed for. Perhaps only a replica
// that is gone had an agent of one: then it is in trouble, and no replica knows of it.
func (b *fleetRecord) addFailingClusters() {
	for i := range b.failures {
		f := &b.failures[i]
		if !isTrouble(f) || b.at.Sub(f.Last) > keepCluster {
			continue
		}
		if c := b.recordOf(f.Cluster); f.Last.After(c.lastSeen) {
			c.lastSeen = f.Last
		}
	}
}

func (b *fleetRecord) recordOf(cluster string) *clusterRecord {
	c := b.clusters[cluster]
	if c == nil {
		c = &clusterRecord{name: cluster}
		b.clusters[cluster] = c
	}
	return c
}

// addToTotal adds a cluster's point to the total.
func (b *fleetRecord) addToTotal(p point) {
	t := &b.total.current
	t.streams += p.streams
	if isKnown(p.in) {
		t.in, t.out = t.in+p.in, t.out+p.out
	}
	t.dials, t.failed, t.denied = t.dials+p.dials, t.failed+p.failed, t.denied+p.denied
}

// updatePoint computes the current point from the sessions and those of the
// sample before.
func (c *clusterRecord) updatePoint(was []session, elapsed time.Duration, answered map[string]bool, replicas map[string]*replica) {
	now := point{roundTrip: unknown}
	var in, out uint64
	for i := range c.sessions {
		s := &c.sessions[i]
		now.streams += float32(s.Streams)
		if trip := float32(s.RoundTrip.Seconds()); trip > 0 && !(now.roundTrip > trip) {
			now.roundTrip = trip // the slowest of several
		}
		before, ok := previousSession(was, s)
		if !ok && !answered[s.replica] {
			continue // its counters may have begun at any time
		}
		dIn, dOut := counterGrowth(s.BytesIn, before.BytesIn), counterGrowth(s.BytesOut, before.BytesOut)
		in, out = in+dIn, out+dOut
		now.dials += uint32(counterGrowth(s.Dials, before.Dials))
		now.failed += uint32(counterGrowth(s.Failed, before.Failed))
		now.denied += uint32(counterGrowth(s.Denied, before.Denied))
		if r := replicas[s.replica]; r != nil && elapsed > 0 {
			r.in, r.out = r.in+float32(float64(dIn)/elapsed.Seconds()), r.out+float32(float64(dOut)/elapsed.Seconds())
		}
	}
	now.in, now.out = unknown, unknown
	if elapsed > 0 && elapsed <= maxInterval {
		now.in, now.out = float32(float64(in)/elapsed.Seconds()), float32(float64(out)/elapsed.Seconds())
	}
	c.current = now
}

// lastReplicas are the replicas that held the cluster last.
func (c *clusterRecord) lastReplicas() (names []string) {
	for i := range c.seen {
		if !slices.Contains(names, c.seen[i].replica) {
			names = append(names, c.seen[i].replica)
		}
	}
	if len(names) == 0 { // it was gone when somebody first looked
		for i := range c.ended {
			names = append(names, c.ended[i].replica)
		}
	}
	return names
}

// leftAt returns when the last agent left. If exact is false no replica says so, and it is
// when it was last seen. Zero: it never was.
func (c *clusterRecord) leftAt() (t time.Time, exact bool) {
	t = c.lastReachable
	for i := range c.ended {
		if ended := c.ended[i].Ended; !ended.Before(t) {
			t, exact = ended, true
		}
	}
	return t, exact
}

// previousSession returns what a session was at the sample before, or zeros.
func previousSession(was []session, s *session) (tunnel.SessionInfo, bool) {
	for i := range was {
		if was[i].ID == s.ID && was[i].replica == s.replica {
			return was[i].SessionInfo, true
		}
	}
	return tunnel.SessionInfo{}, false
}

// counterGrowth returns how much a counter has grown. One that went back was reset.
func counterGrowth(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// slots is how many points there are to a sparkline.
const slots = 60

// point is the sample of one step. Rates and times are NaN if they are unknown; in
// a gap the streams are, too.
type point struct {
	streams       float32
	in, out       float32 // bytes a second
	roundTrip     float32 // seconds
	dials, failed uint32
	denied        uint32 // of failed, by the agent's policy
}

var unknown = float32(math.NaN())

var gap = point{streams: unknown, in: unknown, out: unknown, roundTrip: unknown}

func isKnown(v float32) bool { return v == v }

// history is a ring of the last points. Steps count from the first sample. The
// zero history is empty.
type history struct {
	next   int64 // the step after the last that was put
	points [slots]point
}

// addPoint sets the point of a step. The dials add up with those of an earlier
// point of the same step.
func (h *history) addPoint(step int64, p point) {
	if step == h.next-1 {
		was := h.points[step%slots]
		p.dials, p.failed, p.denied = p.dials+was.dials, p.failed+was.failed, p.denied+was.denied
		if !isKnown(p.in) { // the first sample knows no rates
			p.in, p.out = was.in, was.out
		}
	}
	for i := max(h.next, step-slots+1); i < step; i++ {
		h.points[i%slots] = gap
	}
	h.points[step%slots] = p
	h.next = step + 1
}

// pointsUntil returns the points up to a step, the oldest first. The step is not
// before the last one that was added.
func (h *history) pointsUntil(step int64) (points [slots]point) {
	for i := range points {
		at := step - slots + 1 + int64(i)
		points[i] = gap
		if at >= 0 && at < h.next {
			points[i] = h.points[at%slots]
		}
	}
	return points
}

// dialsBetween returns how many dials there were in the points of the steps. Failed are
// those that failed, but not by the agent's policy: that is no trouble of the cluster.
func (h *history) dialsBetween(first, last int64) (dials, failed, denied uint32) {
	points := h.pointsUntil(last)
	for _, p := range points[max(slots-1-(last-first), 0):] {
		dials, failed, denied = dials+p.dials, failed+p.failed-p.denied, denied+p.denied
	}
	return dials, failed, denied
}
