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
)

// fleetRecord keeps the last sample of the fleet.
type fleetRecord struct {
	at       time.Time // the last sample's; zero before the first one
	began    time.Time
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
	roundTrip     time.Duration     // the slowest; zero: none is known
	dials         tunnel.DialCounts // of the last minutes. Denied are not among the failed: they are no trouble of the cluster
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

type lastError struct{ Replica, Text string }

// endedSession is the last session of a replica that has none of the cluster any more.
type endedSession struct {
	replica string
	tunnel.EndedSession
}

// addSample takes what Fleet returned.
func (b *fleetRecord) addSample(at time.Time, fleet []tunnel.ReplicaStatus) {
	if b.clusters == nil {
		b.clusters, b.began = map[string]*clusterRecord{}, at
	}
	b.beginSample()
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
		c.addFigures()
		c.state = b.classify(c, takers)
		if c.state.isReachable() {
			c.lastReachable = at
		}
	}
}

func (b *fleetRecord) beginSample() {
	for name, c := range b.clusters {
		c.sessions, c.ended, c.errors = nil, nil, nil
		if !c.known { // a client may have made it up
			delete(b.clusters, name)
		}
	}
	b.replicas = nil
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

// addFigures sums up the sessions.
func (c *clusterRecord) addFigures() {
	c.streams, c.roundTrip, c.dials = 0, 0, tunnel.DialCounts{}
	for i := range c.sessions {
		s := &c.sessions[i]
		c.streams += s.Streams
		c.roundTrip = max(c.roundTrip, s.RoundTrip)
		c.dials.Dials += s.Recent.Dials
		c.dials.Failed += s.Recent.Failed - min(s.Recent.Denied, s.Recent.Failed)
		c.dials.Denied += s.Recent.Denied
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
