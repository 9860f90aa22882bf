package tunnel

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/group"
)

// registry has the sessions of a Server. The zero registry is empty.
type registry struct {
	mu       sync.Mutex // guards the fields below
	sessions map[*agentSession]bool
	byAgent  map[Identity][]*agentSession // in the order in which they registered
	clusters map[string]*cluster
	revoked  map[Identity]bool // since the Server began
	sweepAt  int               // of clusters: when those are forgotten that are over
}

// maxSessions is how many sessions one agent may have. Those that drain are
// sessions too: an agent whose streams outlive that many renewals loses the
// oldest.
const maxSessions = 64

// cluster is what is known of a cluster that has, or had, an agent.
type cluster struct {
	agents  map[string]*agentSession // the newest of each that takes streams
	open    int                      // sessions
	until   time.Time                // agents of those that ended may come back so long
	lastErr error
}

// over reports whether no agent of the cluster can come back without a new
// invitation, or, if it did not enrol, was there for a week.
func (c *cluster) over(now time.Time) bool { return c.open == 0 && now.After(c.until) }

// add registers a session and returns those that it replaces: the same
// agent's, for the caller to retire. It reports whether the agent was not revoked.
func (r *registry) add(sess *agentSession) (replaced []*agentSession, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.revoked[sess.id] {
		return nil, false
	}
	if r.sessions == nil {
		r.sessions, r.byAgent, r.clusters = map[*agentSession]bool{}, map[Identity][]*agentSession{}, map[string]*cluster{}
	}
	r.sessions[sess] = true
	r.byAgent[sess.id] = append(r.byAgent[sess.id], sess)
	c := r.clusters[sess.id.Cluster]
	if c == nil {
		if len(r.clusters) >= r.sweepAt { // twice as many as were left the last time
			r.sweepLocked(sess.server.enroller.clock())
			r.sweepAt = 2*len(r.clusters) + 16
		}
		c = &cluster{agents: map[string]*agentSession{}}
		r.clusters[sess.id.Cluster] = c
	}
	c.open++
	old := c.agents[sess.id.Agent]
	switch {
	case old == nil:
	case old.seq > sess.seq: // overtaken on the way here
		return []*agentSession{sess}, true
	default:
		replaced = append(replaced, old)
	}
	c.agents[sess.id.Agent] = sess
	return replaced, true
}

// sweepLocked forgets clusters, or those that come and go would pile up.
func (r *registry) sweepLocked(now time.Time) {
	maps.DeleteFunc(r.clusters, func(_ string, c *cluster) bool { return c.over(now) })
}

// revoke lets no more sessions of the agent in and returns those that are
// there. One that was on its way here when the Store was asked is not let in.
func (r *registry) revoke(id Identity) []*agentSession {
	r.mu.Lock()
	if r.revoked == nil {
		r.revoked = map[Identity]bool{}
	}
	r.revoked[id] = true
	r.mu.Unlock()
	return r.ofAgent(id)
}

// allRevoked are those that revoke was called for.
func (r *registry) allRevoked() []Identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.revoked))
}

// drop has dials take other sessions of the cluster.
func (r *registry) drop(sess *agentSession) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropLocked(sess)
}

func (r *registry) dropLocked(sess *agentSession) {
	if c := r.clusters[sess.id.Cluster]; c != nil && c.agents[sess.id.Agent] == sess {
		delete(c.agents, sess.id.Agent)
	}
}

// remove forgets the session, which ended because of err; nil if in order.
func (r *registry) remove(sess *agentSession, err error) {
	until := sess.until()
	if sess.byIdentify { // with another certificate it can come back at any time
		until = sess.server.enroller.clock().Add(defaultLife)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropLocked(sess)
	delete(r.sessions, sess)
	its := slices.DeleteFunc(r.byAgent[sess.id], func(other *agentSession) bool { return other == sess })
	if r.byAgent[sess.id] = its; len(its) == 0 {
		delete(r.byAgent, sess.id)
	}
	c := r.clusters[sess.id.Cluster]
	c.open--
	if until.After(c.until) {
		c.until = until
	}
	if err != nil {
		c.lastErr = err
	}
}

// candidates returns the sessions that a dial may take, the best first: those
// that answered their last probe, then the ones with the fewest streams.
func (r *registry) candidates(name string) []*agentSession {
	r.mu.Lock()
	var all []*agentSession
	if c := r.clusters[name]; c != nil {
		for _, sess := range c.agents {
			if !sess.Closed() { // it may not be removed yet
				all = append(all, sess)
			}
		}
	}
	r.mu.Unlock()
	if len(all) < 2 {
		return all
	}
	type ranked struct {
		sess    *agentSession
		suspect bool
		load    int
	}
	ranks := make([]ranked, len(all))
	for i, sess := range all {
		ranks[i] = ranked{sess, sess.IsSuspect(), sess.OpenStreams()}
	}
	slices.SortFunc(ranks, func(a, b ranked) int {
		if a.suspect != b.suspect {
			if a.suspect {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.load, b.load), cmp.Compare(a.sess.seq, b.sess.seq))
	})
	for i, r := range ranks {
		all[i] = r.sess
	}
	return all
}

func (r *registry) all() []*agentSession {
	return r.filter(func(*agentSession) bool { return true })
}

func (r *registry) of(g *group.Group) []*agentSession {
	return r.filter(func(sess *agentSession) bool { return sess.Group == g })
}

func (r *registry) ofAgent(id Identity) []*agentSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.byAgent[id])
}

// excess returns the agent's oldest sessions, those that are too many.
func (r *registry) excess(id Identity) []*agentSession {
	its := r.ofAgent(id)
	return its[:max(len(its)-maxSessions, 0)]
}

func (r *registry) filter(keep func(*agentSession) bool) []*agentSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kept []*agentSession
	for sess := range r.sessions {
		if keep(sess) {
			kept = append(kept, sess)
		}
	}
	slices.SortFunc(kept, func(a, b *agentSession) int { return cmp.Compare(a.seq, b.seq) })
	return kept
}

// next returns the best candidate that was not tried; nil if there is none.
func (r *registry) next(cluster string, tried map[*agentSession]bool) *agentSession {
	for _, sess := range r.candidates(cluster) {
		if !tried[sess] {
			return sess
		}
	}
	return nil
}
