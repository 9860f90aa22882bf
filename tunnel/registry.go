package tunnel

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// registry holds the sessions of a Server with agents. The zero registry is empty.
type registry struct {
	life time.Duration // of certificates

	mu       sync.Mutex // guards the fields below
	sessions map[*agentSession]bool
	clusters map[string]*cluster
	revoked  map[Identity]time.Time // since the Server began, maxRevoked at most; without an Agent: all of a cluster
	sweepAt  int                    // sweepLocked is called when there are so many clusters
	emptied  time.Time              // when the last session ended; zero: none has, or one is open
}

// The limits of sessions, draining ones included. Beyond them the oldest session ends:
// that of an agent whose streams outlive so many renewals, for example.
const (
	maxSessions       = 64   // of one replica of an agent
	maxSharedSessions = 1024 // of all replicas of an agent together
)

// maxRevoked is how many revocations are remembered: another replica may name any. Beyond that one is
// forgotten for each, and the Store knows it.
const maxRevoked = 16 << 10

// cluster is the record of a cluster that has, or had, an agent.
type cluster struct {
	agents   map[agentKey]*agentSession // of each agent the newest session that takes streams
	sessions map[*agentSession]bool     // all that are open
	until    time.Time                  // until then an agent whose session ended may come back
	lastErr  string
	last     *EndedSession // nil: none has ended
}

// agentKey tells the agents of a cluster apart.
type agentKey struct{ agent, replica string }

func (sess *agentSession) agentKey() agentKey { return agentKey{sess.id.Agent, sess.replica} }

// add registers a session. It returns the sessions of the same agent that this one
// replaces, which the caller retires; ok is false if the agent was revoked.
func (r *registry) add(sess *agentSession) (replaced []*agentSession, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isRevokedLocked(sess) {
		return nil, false
	}
	if r.sessions == nil {
		r.sessions, r.clusters = map[*agentSession]bool{}, map[string]*cluster{}
	}
	r.sessions[sess], r.emptied = true, time.Time{}
	c := r.clusters[sess.id.Cluster]
	if c == nil {
		if len(r.clusters) >= r.sweepAt { // twice as many as were left the last time
			r.sweepLocked(sess.server.registrar.clock())
			r.sweepAt = 2*len(r.clusters) + 16
		}
		c = &cluster{agents: map[agentKey]*agentSession{}, sessions: map[*agentSession]bool{}}
		r.clusters[sess.id.Cluster] = c
	}
	c.sessions[sess] = true
	old := c.agents[sess.agentKey()]
	switch {
	case old == nil:
	case old.seq > sess.seq: // a newer session was registered first
		return []*agentSession{sess}, true
	default:
		replaced = append(replaced, old)
	}
	c.agents[sess.agentKey()] = sess
	return replaced, true
}

// sweepLocked removes the clusters that can be forgotten.
func (r *registry) sweepLocked(now time.Time) {
	// No agent of theirs is connected, and none can come back without a new invitation. An agent that did not
	// enrol counts for a week.
	maps.DeleteFunc(r.clusters, func(_ string, c *cluster) bool { return len(c.sessions) == 0 && now.After(c.until) })
}

// revoke refuses new sessions of the agent from now on, also one for which the Store
// was asked before. If id has no Agent, it refuses those of the whole cluster whose
// certificate was made before at. It returns the present sessions that it refuses. It looks at
// those of the cluster only, since another replica may call it as often as it likes.
func (r *registry) revoke(id Identity, at time.Time) []*agentSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.revoked == nil {
		r.revoked = map[Identity]time.Time{}
	}
	over, c := r.isOver(id, at), r.clusters[id.Cluster]
	if before, ok := r.revoked[id]; at.After(before) && !over {
		for other := range r.revoked {
			if ok || len(r.revoked) < maxRevoked {
				break
			}
			delete(r.revoked, other)
		}
		r.revoked[id] = at
	}
	if over || c == nil {
		return nil
	}
	return sessionsIn(c.sessions, func(sess *agentSession) bool {
		return sess.id == id || id.Agent == "" && sess.after.Before(at)
	})
}

// isOver reports whether all certificates that the revocation of a cluster refuses have
// ended. The Store may have forgotten it: new certificates do not come after it.
func (r *registry) isOver(id Identity, at time.Time) bool {
	return id.Agent == "" && time.Since(at) > r.life+keepSlack/2
}

func (r *registry) isRevokedLocked(sess *agentSession) bool {
	_, revoked := r.revoked[sess.id]
	cluster := Identity{Cluster: sess.id.Cluster}
	at := r.revoked[cluster]
	return revoked || sess.after.Before(at) && !r.isOver(cluster, at)
}

// allRevoked returns what revoke was called with.
func (r *registry) allRevoked() map[Identity]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.revoked, r.isOver)
	return maps.Clone(r.revoked)
}

// stopDials makes dials use other sessions of the cluster.
func (r *registry) stopDials(sess *agentSession) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clusters[sess.id.Cluster]; c != nil && c.agents[sess.agentKey()] == sess {
		delete(c.agents, sess.agentKey())
	}
}

// remove removes a session that has ended because of err; nil if in order.
func (r *registry) remove(sess *agentSession, err error) {
	until := sess.lifeEnd()
	last := &EndedSession{SessionInfo: sess.sessionInfo(), Ended: time.Now()}
	if err != nil {
		last.Error = causeText(err)
	}
	r.stopDials(sess)
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.sessions, sess); len(r.sessions) == 0 {
		r.emptied = time.Now()
	}
	c := r.clusters[sess.id.Cluster]
	delete(c.sessions, sess)
	if until.After(c.until) {
		c.until = until
	}
	if c.last = last; err != nil {
		c.lastErr = last.Error
	}
}

// emptySince returns when the last agent left. ok is false while there is one, and
// before the first one came.
func (r *registry) emptySince() (t time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.emptied, !r.emptied.IsZero()
}

// dialCandidates returns the sessions that a dial may use.
func (r *registry) dialCandidates(name string) []*agentSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clusters[name]
	if c == nil {
		return nil
	}
	// One that is closed may not be removed yet.
	return slices.DeleteFunc(slices.Collect(maps.Values(c.agents)), func(sess *agentSession) bool { return sess.Closed() })
}

// countServing returns how many sessions take streams.
func (r *registry) countServing() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clusters {
		n += len(c.agents)
	}
	return n
}

func (r *registry) allSessions() []*agentSession {
	return r.sessionsWhere(func(*agentSession) bool { return true })
}

func (r *registry) ofAgent(id Identity) []*agentSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clusters[id.Cluster]
	if c == nil {
		return nil
	}
	return sessionsIn(c.sessions, func(sess *agentSession) bool { return sess.id == id })
}

// excessSessions returns the oldest sessions of the replica of sess, and of all replicas
// of its agent, as many as are above the limits.
func (r *registry) excessSessions(sess *agentSession) []*agentSession {
	all := r.ofAgent(sess.id)
	excess := all[:max(len(all)-maxSharedSessions, 0)]
	its := slices.DeleteFunc(slices.Clone(all[len(excess):]), func(other *agentSession) bool { return other.replica != sess.replica })
	return slices.Concat(excess, its[:max(len(its)-maxSessions, 0)])
}

func (r *registry) sessionsWhere(keep func(*agentSession) bool) []*agentSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sessionsIn(r.sessions, keep)
}

func sessionsIn(all map[*agentSession]bool, keep func(*agentSession) bool) []*agentSession {
	kept := slices.DeleteFunc(slices.Collect(maps.Keys(all)), func(sess *agentSession) bool { return !keep(sess) })
	slices.SortFunc(kept, func(a, b *agentSession) int { return cmp.Compare(a.seq, b.seq) })
	return kept
}

// nextSession returns the best session for a dial that was not tried; nil if there is
// none. Suspect ones come last, and of the others those with the fewest streams come first.
func (r *registry) nextSession(cluster string, tried map[*agentSession]bool) *agentSession {
	var best *agentSession
	var suspect bool
	var load int
	for _, sess := range r.dialCandidates(cluster) {
		if tried[sess] {
			continue
		}
		its, n := sess.IsSuspect(), sess.OpenStreams()
		if best == nil || suspect && !its || suspect == its && cmp.Or(cmp.Compare(n, load), cmp.Compare(sess.seq, best.seq)) < 0 {
			best, suspect, load = sess, its, n
		}
	}
	return best
}
