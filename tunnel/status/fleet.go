package status

import (
	"slices"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

const (
	// keepCluster is how long a cluster is remembered after the last replica has
	// forgotten it: perhaps only the replica that held it is gone.
	keepCluster = 24 * time.Hour
	// countFor is how long dials are counted together. The figures are those of this time
	// and of the time before.
	countFor = 5 * time.Minute
)

// fleetRecord keeps the last sample of the fleet, and the dials of the last minutes.
type fleetRecord struct {
	at       time.Time // the last sample's; zero before the first one
	began    time.Time
	counted  [2]time.Time // since when the clusters' dials are counted
	replicas []replica
	clusters map[string]*clusterRecord
	refusals []tunnel.Refusals
	failures []tunnel.DialFailures // the latest first; a cluster may be none of clusters
}

// replica is a replica at the last sample.
type replica struct {
	tunnel.ReplicaStatus // without the clusters
	clusters             int
	sessions, streams    int
}

// clusterRecord keeps the last sample of a cluster.
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
	streams       int
	roundTrip     time.Duration // the slowest; zero: none is known
	dials         [2]dialCounts // since fleetRecord.counted, and before that
}

// dialCounts counts dials. Denied are those that the agent's policy did not allow. They are
// no trouble of the cluster, and not among the failed.
type dialCounts struct{ dials, failed, denied uint64 }

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

type lastError struct{ Replica, Text string }

// endedSession is the last session of a replica that has none of the cluster any more.
type endedSession struct {
	replica string
	tunnel.EndedSession
}

// addSample takes what Fleet returned.
func (b *fleetRecord) addSample(at time.Time, fleet []tunnel.ReplicaStatus) {
	if b.clusters == nil {
		b.clusters, b.began, b.counted = map[string]*clusterRecord{}, at, [2]time.Time{at, at}
	}
	answered := map[string]bool{} // at the sample before
	for _, r := range b.replicas {
		answered[r.Name] = r.Connected
	}
	was := b.beginSample()
	b.at = at
	for i := range fleet {
		b.addReplica(&fleet[i])
	}
	slices.SortStableFunc(b.replicas, compareReplicas)
	b.failures, b.refusals = mergeFailures(fleet), mergeRefusals(fleet)
	b.addFailingClusters()
	takers := 0
	for i := range b.replicas {
		if r := &b.replicas[i]; r.Connected && !r.Draining {
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
		c.addFigures(was[name], answered)
		c.state = b.classify(c, takers)
		if c.state.isReachable() {
			c.lastReachable = at
		}
	}
	b.countAnew()
}

// countAnew begins to count dials anew if that is due.
func (b *fleetRecord) countAnew() {
	if b.at.Sub(b.counted[0]) < countFor {
		return
	}
	b.counted = [2]time.Time{b.at, b.counted[0]}
	for _, c := range b.clusters {
		c.dials = [2]dialCounts{{}, c.dials[0]}
	}
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

// addFigures sums up the sessions, and counts the dials since the sample before, which had
// the sessions was.
func (c *clusterRecord) addFigures(was []session, answered map[string]bool) {
	c.streams, c.roundTrip = 0, 0
	for i := range c.sessions {
		s := &c.sessions[i]
		c.streams += s.Streams
		c.roundTrip = max(c.roundTrip, s.RoundTrip)
		before, ok := previousSession(was, s)
		if !ok && !answered[s.replica] {
			continue // its counters may have begun at any time
		}
		d := &c.dials[0]
		failed, denied := counterGrowth(s.Failed, before.Failed), counterGrowth(s.Denied, before.Denied)
		d.dials += counterGrowth(s.Dials, before.Dials)
		d.failed += failed - min(denied, failed)
		d.denied += denied
	}
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
