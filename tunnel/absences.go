package tunnel

import (
	"maps"
	"sync"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// maxAbsences bounds each of the maps of absences: some megabytes.
const maxAbsences = 10_000

// absences is what this replica knows of clusters without an agent, so that dials that
// can only fail do not ask all other replicas each time. A replica that says that it has
// none tells the one that asked as soon as one comes.
type absences struct {
	mu    sync.Mutex           // guards the fields below
	none  map[string]time.Time // clusters of which no other replica has an agent; until when that counts
	asked map[asking]bool      // who was told that there is none here
	news  uint64               // how often forget and forgetAll were called
}

// asking is a replica that has asked for an agent of the cluster.
type asking struct {
	peer    *inboundPeer
	cluster string
}

// beginSearch returns a number for remember.
func (a *absences) beginSearch() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.news
}

// remember notes that no other replica has an agent of the cluster, unless there was
// news since beginSearch.
func (a *absences) remember(cluster string, began uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.news != began {
		return
	}
	if a.none == nil {
		a.none = map[string]time.Time{}
	}
	if len(a.none) >= maxAbsences {
		clear(a.none)
	}
	a.none[cluster] = time.Now().Add(wire.NoneFor)
}

// knows reports whether no other replica has an agent of the cluster.
func (a *absences) knows(cluster string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.none[cluster])
}

// forget is called when another replica has an agent of the cluster.
func (a *absences) forget(cluster string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.news++
	delete(a.none, cluster)
}

// forgetAll is called when a replica comes or goes.
func (a *absences) forgetAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.news++
	clear(a.none)
}

// noteAsked notes that a replica asks. It is called before this one looks for an agent.
func (a *absences) noteAsked(p *inboundPeer, cluster string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked == nil {
		a.asked = map[asking]bool{}
	}
	if len(a.asked) >= maxAbsences {
		clear(a.asked) // who is not told knows after wire.NoneFor
	}
	a.asked[asking{p, cluster}] = true
}

// dropAsker is called when a replica has left.
func (a *absences) dropAsker(p *inboundPeer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.asked, func(k asking, _ bool) bool { return k.peer == p })
}

// takeAskers returns who of the replicas waits to hear of an agent that has come.
func (a *absences) takeAskers(cluster string, peers []*inboundPeer) (askers []*inboundPeer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.asked) == 0 {
		return nil
	}
	for _, p := range peers {
		if key := (asking{p, cluster}); a.asked[key] {
			delete(a.asked, key)
			askers = append(askers, p)
		}
	}
	return askers
}
