package provider

import (
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/internal/controller"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

const (
	maxResults = 8                // of one Cluster
	maxTold    = 32               // Events of one Cluster
	patience   = 30 * time.Second // with a cache that doesn't show what was written
)

// ledger is what is known of Clusters beside what the API server holds. It
// may be lost at any time: at the cost of a few probes.
type ledger struct {
	mu       sync.Mutex // guards all below
	clusters map[types.NamespacedName]*remembered
	users    map[types.NamespacedName]map[types.NamespacedName]bool // of a route Secret
}

type remembered struct {
	uid       string
	results   map[string]Result
	flying    map[string]bool // keys of the probes that run
	route     types.NamespacedName
	written   *written
	seen      map[types.NamespacedName]string // the newest resourceVersion of each Secret that the cache has told of
	condition *applied
	told      map[string]time.Time // Events
}

// written is a write that the cache may not show yet.
type written struct {
	secret  types.NamespacedName
	version string    // the resourceVersion; of a deletion, the one before
	created bool      // by a Create
	deleted types.UID // by a Delete
	at      time.Time
}

// applied is a condition that was written, and the Cluster's resourceVersion
// since.
type applied struct {
	condition metav1.Condition
	version   string
}

func newLedger() *ledger {
	return &ledger{
		clusters: map[types.NamespacedName]*remembered{},
		users:    map[types.NamespacedName]map[types.NamespacedName]bool{},
	}
}

// begin notes the Cluster, and which route Secret it uses. A Cluster that was
// made anew is another one.
func (m *ledger) begin(key types.NamespacedName, uid string, route types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clusters[key]
	if c != nil && c.uid != uid {
		m.forgetLocked(key)
		c = nil
	}
	if c == nil {
		c = &remembered{uid: uid, results: map[string]Result{}, flying: map[string]bool{}, told: map[string]time.Time{}, seen: map[types.NamespacedName]string{}}
		m.clusters[key] = c
	}
	if c.route == route {
		return
	}
	m.unuseLocked(key, c.route)
	c.route = route
	if m.users[route] == nil {
		m.users[route] = map[types.NamespacedName]bool{}
	}
	m.users[route][key] = true
}

func (m *ledger) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetLocked(key)
}

func (m *ledger) forgetLocked(key types.NamespacedName) {
	if c := m.clusters[key]; c != nil {
		m.unuseLocked(key, c.route)
		delete(m.clusters, key)
	}
}

func (m *ledger) unuseLocked(key, route types.NamespacedName) {
	delete(m.users[route], key)
	if len(m.users[route]) == 0 {
		delete(m.users, route)
	}
}

// usersOf returns the Clusters that use the route Secret.
func (m *ledger) usersOf(route types.NamespacedName) []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.users[route]))
}

func (m *ledger) results(key types.NamespacedName) map[string]Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.clusters[key]; c != nil {
		return maps.Clone(c.results)
	}
	return nil
}

// fly reports whether the probe is to be started.
func (m *ledger) fly(key types.NamespacedName, probe string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clusters[key]
	if c == nil || c.flying[probe] {
		return false
	}
	c.flying[probe] = true
	return true
}

// land notes the answer to a probe, unless the Cluster is gone.
func (m *ledger) land(key types.NamespacedName, uid, probe string, report *probe.Report, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clusters[key]
	if c == nil || c.uid != uid {
		return
	}
	delete(c.flying, probe)
	if report == nil {
		return
	}
	result := Result{Report: *report, At: now}
	if !report.OK() {
		result.Failures = c.results[probe].Failures + 1
	}
	c.results[probe] = result
	for len(c.results) > maxResults {
		oldest := probe
		for k, r := range c.results {
			if r.At.Before(c.results[oldest].At) {
				oldest = k
			}
		}
		delete(c.results, oldest)
	}
}

// wrote notes a write; its echo is waited for.
func (m *ledger) wrote(key types.NamespacedName, w written) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.clusters[key]; c != nil {
		c.written = &w
	}
}

// saw notes that the cache has, or had, a Secret in a version.
func (m *ledger) saw(key, secret types.NamespacedName, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.clusters[key]; c != nil && !controller.Older(version, c.seen[secret]) {
		c.seen[secret] = version
	}
}

// caughtUp reports whether the cache shows what was written last. get reads the
// cache.
func (m *ledger) caughtUp(key types.NamespacedName, now time.Time, get func(types.NamespacedName) metav1.Object) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clusters[key]
	if c == nil || c.written == nil {
		return true
	}
	// One that was made may be deleted before it was looked for.
	seen, ok := c.seen[c.written.secret]
	shown := ok && c.written.deleted == "" && !controller.Older(seen, c.written.version) || c.written.shown(get(c.written.secret))
	if !shown && now.Sub(c.written.at) < patience {
		return false
	}
	c.written = nil
	return true
}

// shown says whether the cache, which holds this (nil for nothing), has seen
// the write.
func (w *written) shown(cached metav1.Object) bool {
	switch {
	case cached == nil:
		return !w.created // gone since, or deleted by us
	case w.deleted != "":
		return cached.GetUID() != w.deleted
	}
	return !controller.Older(cached.GetResourceVersion(), w.version)
}

func (m *ledger) appliedCondition(key types.NamespacedName, c metav1.Condition, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.clusters[key]; known != nil {
		known.condition = &applied{c, version}
	}
}

// condition returns the one that was written after the version, if there is one.
func (m *ledger) condition(key types.NamespacedName, version string) *metav1.Condition {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clusters[key]
	if c == nil || c.condition == nil {
		return nil
	}
	if !controller.Older(version, c.condition.version) {
		c.condition = nil
		return nil
	}
	return c.condition.condition.DeepCopy()
}

// tell reports whether the Event is new.
func (m *ledger) tell(key types.NamespacedName, event string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clusters[key]
	if c == nil {
		return true
	}
	if _, ok := c.told[event]; ok {
		return false
	}
	if len(c.told) >= maxTold {
		maps.DeleteFunc(c.told, func(_ string, at time.Time) bool { return now.Sub(at) > controller.EventWindow })
	}
	if len(c.told) < maxTold {
		c.told[event] = now
	}
	return true
}
