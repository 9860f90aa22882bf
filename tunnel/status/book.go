package status

import (
	"slices"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

const (
	// keep is how long a cluster is remembered that no replica knows any more:
	// where the replica that held it went away, that is the trouble.
	keep = 24 * time.Hour
	// long is a time between samples after which a rate says nothing of now.
	long = time.Minute
)

// book is what was seen of the fleet, now and in the last steps.
type book struct {
	at       time.Time // of the last sample; zero: there was none
	began    time.Time
	step     time.Duration
	replicas []replica
	clusters map[string]*record
	total    record // of all clusters
}

// replica is one at the last sample.
type replica struct {
	tunnel.ReplicaStatus // without the clusters
	clusters             int
	sessions, streams    int
	in, out              float32
}

// record is what was seen of a cluster.
type record struct {
	name   string
	state  state
	held   []session // now
	errors []lastError
	seen   time.Time // when a replica knew of it
	up     time.Time // when it could be dialed; zero: never as far as was seen
	homes  []string  // the replicas that held it last, held or not
	now    point
	past   history
}

type session struct {
	replica string
	// leaving: it takes no new streams, or its replica doesn't.
	leaving bool
	tunnel.SessionInfo
}

type lastError struct{ replica, text string }

// add takes what Fleet returned.
func (b *book) add(at time.Time, step time.Duration, fleet []tunnel.ReplicaStatus) {
	if b.clusters == nil {
		b.clusters, b.began = map[string]*record{}, at
	}
	elapsed := at.Sub(b.at)
	answered := map[string]bool{} // at the sample before
	for _, r := range b.replicas {
		answered[r.Name] = r.Connected
	}
	was := b.turn()
	b.at, b.step = at, step
	for i := range fleet {
		b.addReplica(&fleet[i])
	}
	slices.SortStableFunc(b.replicas, byReplica)
	b.total.now = point{trip: unknown}
	replicas, takers := map[string]*replica{}, 0
	for i := range b.replicas {
		r := &b.replicas[i]
		replicas[r.Name] = r
		if r.Connected && !r.Draining {
			takers++
		}
	}
	for name, c := range b.clusters {
		if at.Sub(c.seen) > keep {
			delete(b.clusters, name)
			continue
		}
		c.count(was[name], elapsed, answered, replicas)
		c.past.put(b.index(), c.now)
		c.state = c.judge(b.index(), takers)
		if c.state.dialable() {
			c.up = at
		}
		b.sum(c.now)
	}
	if elapsed > long {
		b.total.now.in, b.total.now.out = unknown, unknown
		for _, r := range replicas {
			r.in, r.out = unknown, unknown
		}
	}
	b.total.past.put(b.index(), b.total.now)
}

// turn begins a new sample and returns the sessions of the last.
func (b *book) turn() map[string][]session {
	was := make(map[string][]session, len(b.clusters))
	for name, c := range b.clusters {
		was[name] = c.held
		c.held, c.errors = nil, nil
	}
	b.replicas = nil
	return was
}

// index is the step of the last sample.
func (b *book) index() int64 { return int64(b.at.Sub(b.began) / b.step) }

func (b *book) addReplica(r *tunnel.ReplicaStatus) {
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

func (b *book) addCluster(r *replica, status *tunnel.ClusterStatus) {
	c := b.clusters[status.Cluster]
	if c == nil {
		c = &record{name: status.Cluster}
		b.clusters[status.Cluster] = c
	}
	c.seen = b.at
	for _, info := range status.Sessions {
		c.held = append(c.held, session{replica: r.Name, leaving: info.Draining || r.Draining, SessionInfo: info})
		r.sessions++
		r.streams += info.Streams
	}
	if len(status.Sessions) > 0 {
		r.clusters++
	}
	if status.LastError != "" {
		c.errors = append(c.errors, lastError{r.Name, status.LastError})
	}
}

// sum adds a cluster's point to the total.
func (b *book) sum(p point) {
	t := &b.total.now
	t.streams += p.streams
	if isKnown(p.in) {
		t.in, t.out = t.in+p.in, t.out+p.out
	}
	t.dials, t.failed = t.dials+p.dials, t.failed+p.failed
}

// count computes the point of now from the sessions and those of the sample
// before.
func (c *record) count(was []session, elapsed time.Duration, answered map[string]bool, replicas map[string]*replica) {
	now := point{trip: unknown}
	var in, out uint64
	if len(c.held) > 0 {
		c.homes = nil
	}
	for i := range c.held {
		s := &c.held[i]
		if !slices.Contains(c.homes, s.replica) {
			c.homes = append(c.homes, s.replica)
		}
		now.streams += float32(s.Streams)
		if trip := float32(s.RoundTrip.Seconds()); trip > 0 && !(now.trip > trip) {
			now.trip = trip // of several the slowest
		}
		before, ok := find(was, s)
		if !ok && !answered[s.replica] {
			continue // what it counted may be of any time
		}
		dIn, dOut := since(s.BytesIn, before.BytesIn), since(s.BytesOut, before.BytesOut)
		in, out = in+dIn, out+dOut
		now.dials += uint32(since(s.Dials, before.Dials))
		now.failed += uint32(since(s.Failed, before.Failed))
		if r := replicas[s.replica]; r != nil && elapsed > 0 {
			r.in, r.out = r.in+float32(float64(dIn)/elapsed.Seconds()), r.out+float32(float64(dOut)/elapsed.Seconds())
		}
	}
	now.in, now.out = unknown, unknown
	if elapsed > 0 && elapsed <= long {
		now.in, now.out = float32(float64(in)/elapsed.Seconds()), float32(float64(out)/elapsed.Seconds())
	}
	c.now = now
}

// find returns what a session was at the sample before, or zeros.
func find(was []session, s *session) (tunnel.SessionInfo, bool) {
	for i := range was {
		if was[i].ID == s.ID && was[i].replica == s.replica {
			return was[i].SessionInfo, true
		}
	}
	return tunnel.SessionInfo{}, false
}

// since is how far a counter came. One that went back began anew.
func since(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}
