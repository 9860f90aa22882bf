package status

import (
	"cmp"
	"slices"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// keepCluster is how long a cluster is remembered after the last replica has
// forgotten it: perhaps only the replica that held it is gone.
const keepCluster = 24 * time.Hour

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
	Clusters             int
	Sessions, Streams    int
}

// Title is what the page calls the replica.
func (r *replica) Title() string { return cmp.Or(r.Name, r.Address, "without a name") }

// Link is the URL of its clusters.
func (r *replica) Link() string { return query{Q: r.Name}.link() }

// State says how well it can be reached.
func (r *replica) State() stateText {
	switch {
	case !r.Connected:
		return stateText{Key: "down", Word: "Can't be reached", Sign: "✕"}
	case r.Draining:
		return stateText{Key: "draining", Word: "Draining", Sign: "→"}
	}
	return stateText{Key: "ok", Word: "Answers", Sign: "✓"}
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
	Holder string // the replica of the server
	// Leaving: the session, or its replica, takes no new streams.
	Leaving bool
	tunnel.SessionInfo
}

// AgentText is the agent's name, with that of its replica.
func (s *session) AgentText() string {
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
	b.failures = mergeLatest(fleet, func(s *tunnel.Status) []tunnel.DialFailures { return s.Failures }, readFailure)
	b.refusals = mergeLatest(fleet, func(s *tunnel.Status) []tunnel.Refusals { return s.Refusals }, readRefusal)
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
		c.sessions = append(c.sessions, session{Holder: r.Name, Leaving: info.Draining || r.Draining, SessionInfo: info})
		r.Sessions++
		r.Streams += info.Streams
	}
	if len(status.Sessions) > 0 {
		r.Clusters++
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
		c.dials.Failed += notDenied(s.Recent)
		c.dials.Denied += s.Recent.Denied
	}
}

// notDenied returns how many dials have failed for another reason than a policy.
func notDenied(c tunnel.DialCounts) uint64 { return c.Failed - min(c.Denied, c.Failed) }

// lastReplicas are the replicas that held the cluster last.
func (c *clusterRecord) lastReplicas() (names []string) {
	for i := range c.seen {
		if !slices.Contains(names, c.seen[i].Holder) {
			names = append(names, c.seen[i].Holder)
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
