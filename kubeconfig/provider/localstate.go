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
	maxResults   = 8                // for each Cluster
	maxReported  = 32               // Events for each Cluster
	cacheTimeout = 30 * time.Second // how long to wait until the cache shows a write
)

// localState is the knowledge about Clusters that the API server doesn't hold. If it
// is lost, the only cost is a few probes.
type localState struct {
	mu       sync.Mutex // guards all below
	clusters map[types.NamespacedName]*clusterState
	users    map[types.NamespacedName]map[types.NamespacedName]bool // the Clusters that use a route Secret
}

type clusterState struct {
	uid          string
	results      map[string]Result
	running      map[string]bool // keys of the probes that run
	route        types.NamespacedName
	lastWrite    *secretWrite
	seenVersions map[types.NamespacedName]string // each Secret's newest resourceVersion that the cache had
	condition    *conditionWrite
	reported     map[string]time.Time // Events
}

// secretWrite is a write of a Secret that the cache may not show yet.
type secretWrite struct {
	secret  types.NamespacedName
	version string    // the resourceVersion after the write; for a deletion, before it
	created bool      // by a Create
	deleted types.UID // by a Delete
	at      time.Time
}

// conditionWrite is a condition that was written, and the Cluster's resourceVersion
// since.
type conditionWrite struct {
	condition metav1.Condition
	version   string
}

func newLocalState() *localState {
	return &localState{
		clusters: map[types.NamespacedName]*clusterState{},
		users:    map[types.NamespacedName]map[types.NamespacedName]bool{},
	}
}

// trackCluster records the Cluster and its route Secret. A Cluster with another UID is
// a new one, and starts without state.
func (l *localState) trackCluster(key types.NamespacedName, uid string, route types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clusters[key]
	if c != nil && c.uid != uid {
		l.forgetClusterLocked(key)
		c = nil
	}
	if c == nil {
		c = &clusterState{uid: uid, results: map[string]Result{}, running: map[string]bool{}, reported: map[string]time.Time{}, seenVersions: map[types.NamespacedName]string{}}
		l.clusters[key] = c
	}
	if c.route == route {
		return
	}
	l.removeUserLocked(key, c.route)
	c.route = route
	if l.users[route] == nil {
		l.users[route] = map[types.NamespacedName]bool{}
	}
	l.users[route][key] = true
}

func (l *localState) forgetCluster(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetClusterLocked(key)
}

func (l *localState) forgetClusterLocked(key types.NamespacedName) {
	if c := l.clusters[key]; c != nil {
		l.removeUserLocked(key, c.route)
		delete(l.clusters, key)
	}
}

func (l *localState) removeUserLocked(key, route types.NamespacedName) {
	delete(l.users[route], key)
	if len(l.users[route]) == 0 {
		delete(l.users, route)
	}
}

// usersOf returns the Clusters that use the route Secret.
func (l *localState) usersOf(route types.NamespacedName) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.users[route]))
}

func (l *localState) probeResults(key types.NamespacedName) map[string]Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.clusters[key]; c != nil {
		return maps.Clone(c.results)
	}
	return nil
}

// startProbe marks the probe as running. It returns false if it runs already, or if
// the Cluster is gone.
func (l *localState) startProbe(key types.NamespacedName, probe string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clusters[key]
	if c == nil || c.running[probe] {
		return false
	}
	c.running[probe] = true
	return true
}

// finishProbe records the result of a probe, unless the Cluster is gone. report is nil
// if the probe was canceled.
func (l *localState) finishProbe(key types.NamespacedName, uid, probe string, report *probe.Report, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clusters[key]
	if c == nil || c.uid != uid {
		return
	}
	delete(c.running, probe)
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

// noteWrite records a write. caughtUp then waits until the cache shows it.
func (l *localState) noteWrite(key types.NamespacedName, w secretWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.clusters[key]; c != nil {
		c.lastWrite = &w
	}
}

// noteVersion records a version of a Secret that the cache has or had.
func (l *localState) noteVersion(key, secret types.NamespacedName, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.clusters[key]; c != nil && !controller.Older(version, c.seenVersions[secret]) {
		c.seenVersions[secret] = version
	}
}

// caughtUp reports whether the cache shows the last write. get reads the cache.
func (l *localState) caughtUp(key types.NamespacedName, now time.Time, get func(types.NamespacedName) metav1.Object) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clusters[key]
	if c == nil || c.lastWrite == nil {
		return true
	}
	// A new Secret may be deleted before this looks for it.
	seen, ok := c.seenVersions[c.lastWrite.secret]
	shown := ok && c.lastWrite.deleted == "" && !controller.Older(seen, c.lastWrite.version) || c.lastWrite.visibleIn(get(c.lastWrite.secret))
	if !shown && now.Sub(c.lastWrite.at) < cacheTimeout {
		return false
	}
	c.lastWrite = nil
	return true
}

// visibleIn reports whether the cache has seen the write. cached is what the cache
// holds; nil for nothing.
func (w *secretWrite) visibleIn(cached metav1.Object) bool {
	switch {
	case cached == nil:
		return !w.created // deleted since, by us or by another
	case w.deleted != "":
		return cached.GetUID() != w.deleted
	}
	return !controller.Older(cached.GetResourceVersion(), w.version)
}

func (l *localState) noteCondition(key types.NamespacedName, c metav1.Condition, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.clusters[key]; known != nil {
		known.condition = &conditionWrite{c, version}
	}
}

// conditionAfter returns the condition if it was written after the version, and nil
// otherwise.
func (l *localState) conditionAfter(key types.NamespacedName, version string) *metav1.Condition {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clusters[key]
	if c == nil || c.condition == nil {
		return nil
	}
	if !controller.Older(version, c.condition.version) {
		c.condition = nil
		return nil
	}
	return c.condition.condition.DeepCopy()
}

// noteEvent records the Event, and reports whether it is new.
func (l *localState) noteEvent(key types.NamespacedName, event string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clusters[key]
	if c == nil {
		return true
	}
	if _, ok := c.reported[event]; ok {
		return false
	}
	if len(c.reported) >= maxReported {
		maps.DeleteFunc(c.reported, func(_ string, at time.Time) bool { return now.Sub(at) > controller.EventWindow })
	}
	if len(c.reported) < maxReported {
		c.reported[event] = now
	}
	return true
}
