package controllers

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/kubeconfig/probe"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

const (
	maxResults = 16 // for each Cluster
	maxRunning = 16 // probes of each Cluster

	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute

	firstReplan = 100 * time.Millisecond // after a conflict
	maxReplan   = 10 * time.Second
)

// clusterMap is what a reconciler knows of Clusters that the API server doesn't hold.
type clusterMap[S any] struct {
	mu       sync.Mutex // guards the field below
	clusters map[types.NamespacedName]*S
}

func (l *clusterMap[S]) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.clusters, key)
}

// change calls f with the Cluster's state, unless the Cluster is gone or not looked after. f
// must not block.
func (l *clusterMap[S]) change(key types.NamespacedName, f func(*S)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.clusters[key]; c != nil {
		f(c)
	}
}

// findClusters returns the Clusters that match.
func (l *clusterMap[S]) findClusters(match func(types.NamespacedName, *S) bool) (found []reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, c := range l.clusters {
		if match(key, c) {
			found = append(found, reconcile.Request{NamespacedName: key})
		}
	}
	return found
}

// clusterStates is what the KubeconfigReconciler knows. If it is lost, the only cost is a few
// probes.
type clusterStates struct{ clusterMap[clusterState] }

type clusterState struct {
	uid            string
	route          types.NamespacedName // the route Secret
	sole           bool                 // took itself for its only user when it was planned
	infrastructure reference
	results        map[string]provider.Result
	running        map[string]bool // keys of the probes that run

	conflicts int                     // since all that a plan wanted was written
	failures  map[string]writeFailure // by what was to be written
	condition *conditionWrite
	refused   *refusedCondition
}

// writeFailure is a write that failed, how often, and when to try again.
type writeFailure struct {
	err     error
	times   int
	retryAt time.Time
}

// conditionWrite is a condition that was written, and the Cluster's resourceVersion
// since.
type conditionWrite struct {
	condition metav1.Condition
	version   string
}

// refusedCondition is a condition that another writer's is in the way of.
type refusedCondition struct{ wanted, others metav1.Condition }

// conditionAfter returns the condition if it was written after the version, and nil
// otherwise. A nil w is no write.
func (w *conditionWrite) conditionAfter(version string) *metav1.Condition {
	if w == nil || !clusterapi.IsOlder(version, w.version) {
		return nil
	}
	return w.condition.DeepCopy()
}

// track records the Cluster and its infrastructure. A Cluster with another UID is a new
// one, and starts without state.
func (l *clusterStates) track(key types.NamespacedName, uid string, infrastructure reference) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clusters[key]
	if c == nil || c.uid != uid {
		c = &clusterState{uid: uid, results: map[string]provider.Result{}, running: map[string]bool{}, failures: map[string]writeFailure{}}
		l.clusters[key] = c
	}
	c.infrastructure = infrastructure
}

// moveRoute notes the Cluster's route Secret, and returns those of which it matters: the only
// user of the former one that is left, and who took itself for that of the new one. To the
// others, however many, one more or less is the same.
func (l *clusterStates) moveRoute(key, route types.NamespacedName) (found []reconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clusters[key]
	if c == nil || c.route == route {
		return nil
	}
	before := c.route
	c.route = route
	var left []reconcile.Request
	for other, s := range l.clusters {
		switch {
		case other == key || s.route.Name == "":
		case s.route == before:
			left = append(left, reconcile.Request{NamespacedName: other})
		case s.route == route && s.sole:
			found = append(found, reconcile.Request{NamespacedName: other})
		}
	}
	if len(left) == 1 {
		found = append(found, left[0])
	}
	return found
}

// infrastructures returns what the Clusters name.
func (l *clusterStates) infrastructures() (all []reference) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clusters {
		all = append(all, c.infrastructure)
	}
	return all
}

// startProbe marks the probe as running. It returns false if it runs already, if many of
// the Cluster do, or if the Cluster is gone.
func (l *clusterStates) startProbe(key types.NamespacedName, probe string) (started bool) {
	l.change(key, func(c *clusterState) {
		if started = !c.running[probe] && len(c.running) < maxRunning; started {
			c.running[probe] = true
		}
	})
	return started
}

// finishProbe records the result of a probe, unless the Cluster is gone. report is nil
// if the probe was canceled.
func (l *clusterStates) finishProbe(key types.NamespacedName, uid, probe string, report *probe.Report, now time.Time) {
	l.change(key, func(c *clusterState) {
		if c.uid != uid {
			return
		}
		delete(c.running, probe)
		if report == nil {
			return
		}
		result := provider.Result{Report: *report, At: now}
		if !report.OK() {
			result.Failures = c.results[probe].Failures + 1
		}
		c.results[probe] = result
		for len(c.results) > maxResults {
			dropOldest(c.results, func(r provider.Result) time.Time { return r.At })
		}
	})
}

// noteConflict returns when to plan again after a conflict: a cache that is late may
// lead to several.
func (l *clusterStates) noteConflict(key types.NamespacedName) (after time.Duration) {
	l.change(key, func(c *clusterState) {
		after = spreadTime(min(firstReplan<<min(c.conflicts, 20), maxReplan))
		c.conflicts++
	})
	return after
}

// noteFailure counts a write that failed.
func (l *clusterStates) noteFailure(key types.NamespacedName, what string, err error, now time.Time) writeFailure {
	f := writeFailure{err: err}
	l.change(key, func(c *clusterState) {
		f.times = c.failures[what].times + 1
		f.retryAt = now.Add(min(firstBackoff<<min(f.times-1, 20), maxBackoff))
		c.failures[what] = f
	})
	return f
}

// failureOf returns the last failure of a write, and whether it must not be tried yet.
func (l *clusterStates) failureOf(key types.NamespacedName, what string, now time.Time) (f writeFailure, waits bool) {
	l.change(key, func(c *clusterState) {
		f = c.failures[what]
		waits = now.Before(f.retryAt)
	})
	return f, waits
}

// keepFailures forgets the failures of Secrets' writes but these: the others are not
// wanted any more.
func (l *clusterStates) keepFailures(key types.NamespacedName, wanted []provider.Action) {
	l.change(key, func(c *clusterState) {
		maps.DeleteFunc(c.failures, func(name string, _ writeFailure) bool {
			return name != conditionWrites && !slices.ContainsFunc(wanted, func(a provider.Action) bool { return writeName(a) == name })
		})
	})
}

// writeName names what an Action writes; empty for nothing. Another Secret of that name
// is another write.
func writeName(a provider.Action) string {
	for verb, s := range map[string]*corev1.Secret{writeCreate: a.Create, writeUpdate: a.Update, writeDelete: a.Delete} {
		if s != nil {
			return verb + " " + s.Name + " " + string(s.UID)
		}
	}
	return ""
}
