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
	maxResults   = 8                // of one Cluster
	maxReported  = 32               // Events of one Cluster
	cacheTimeout = 30 * time.Second // with a cache that doesn't show what was written
)

// localState is what is known of Clusters beside what the API server holds. It
// may be lost at any time: at the cost of a few probes.
type localState struct {
	mu       sync.Mutex // guards all below
	clusters map[types.NamespacedName]*clusterState
	users    map[types.NamespacedName]map[types.NamespacedName]bool // of a route Secret
}

type clusterState struct {
	uid          string
	results      map[string]Result
	running      map[string]bool // keys of the probes that run
	route        types.NamespacedName
	lastWrite    *secretWrite
	seenVersions map[types.NamespacedName]string // the newest resourceVersion of each Secret that the cache has told of
	condition    *conditionWrite
	reported     map[string]time.Time // Events
}

// secretWrite is a write that the cache may not show yet.
type secretWrite struct {
	secret  types.NamespacedName
	version string    // the resourceVersion; of a deletion, the one before
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

// trackCluster notes the Cluster, and which route Secret it uses. A Cluster that was
// made anew is another one.
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

// startProbe reports whether the probe is to be started.
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

// finishProbe notes the answer to a probe, unless the Cluster is gone.
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

// noteWrite notes a write; its echo is waited for.
func (l *localState) noteWrite(key types.NamespacedName, w secretWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.clusters[key]; c != nil {
		c.lastWrite = &w
	}
}

// noteVersion notes that the cache has, or had, a Secret in a version.
func (l *localState) noteVersion(key, secret types.NamespacedName, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.clusters[key]; c != nil && !controller.Older(version, c.seenVersions[secret]) {
		c.seenVersions[secret] = version
	}
}

// caughtUp reports whether the cache shows what was written last. get reads the
// cache.
func (l *localState) caughtUp(key types.NamespacedName, now time.Time, get func(types.NamespacedName) metav1.Object) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clusters[key]
	if c == nil || c.lastWrite == nil {
		return true
	}
	// One that was made may be deleted before it was looked for.
	seen, ok := c.seenVersions[c.lastWrite.secret]
	shown := ok && c.lastWrite.deleted == "" && !controller.Older(seen, c.lastWrite.version) || c.lastWrite.visibleIn(get(c.lastWrite.secret))
	if !shown && now.Sub(c.lastWrite.at) < cacheTimeout {
		return false
	}
	c.lastWrite = nil
	return true
}

// visibleIn says whether the cache, which holds this (nil for nothing), has seen
// the write.
func (w *secretWrite) visibleIn(cached metav1.Object) bool {
	switch {
	case cached == nil:
		return !w.created // gone since, or deleted by us
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

// conditionAfter returns the one that was written after the version, if there is one.
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

// noteEvent reports whether the Event is new.
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
