package prometheus

import (
	"maps"
	"sync"

	"github.com/causewayproject/causeway/tunnel"
)

// counts only grow.
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

// grown moves what s counted since c was taken into c, and returns it. Of two
// scrapes side by side the later may come first: what is less than c is old.
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

// traffic turns what the sessions of a Server count, which ends with them,
// into what never goes back. The zero traffic is empty.
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
		if t.clusters == nil {
			t.clusters = map[string]*clusterCounts{}
		}
		c = &clusterCounts{}
		t.clusters[name] = c
	}
	return c
}

func (t *traffic) begin(s tunnel.SessionInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions == nil {
		t.sessions = map[string]*counts{}
	}
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

// seeLocked leaves out a session that has not begun yet, or has ended: a Status
// that was taken before the hook may have it.
func (t *traffic) seeLocked(s tunnel.SessionInfo) {
	if last := t.sessions[s.ID]; last != nil {
		d := last.grown(s)
		t.clusterLocked(s.Cluster).add(d)
		t.total.add(d)
	}
}

// see takes in what the sessions of a cluster count now, and returns what the
// cluster's ever did.
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
