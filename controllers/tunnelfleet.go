package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/tunnel"
)

// fleetInterval is the time between two looks at all replicas, and changeInterval that before
// a look because agents came or went: they may do so all the time. A look at a large fleet
// takes a tenth of the time at most.
const fleetInterval, changeInterval = 2 * time.Second, 500 * time.Millisecond

// tunnelSeen is what the replicas say of a cluster's agents.
type tunnelSeen struct {
	agents int // that are connected, each process once
	// silent says that a replica did not answer, which may have more agents; "" if all did.
	silent    string
	lastError string    // why a session ended, the last time
	expires   time.Time // the first end of a certificate that is in use; zero if nobody is connected
	revoked   time.Time // when all agents were, the last time
}

// fleetClusters sums up what the replicas say, by the names of clusters. silent is that of
// clusters that none of them names.
func fleetClusters(fleet []tunnel.ReplicaStatus) (seen map[string]tunnelSeen, silent string) {
	for _, r := range fleet {
		switch {
		case r.Self && r.LastError != "":
			silent = "the server does not know its other replicas: " + r.LastError
		case !r.Self && (r.LastError != "" || !r.Connected && !r.Draining):
			silent = "replica " + cmp.Or(r.Name, r.Address) + " of the server does not answer"
		}
	}
	seen = map[string]tunnelSeen{}
	agents := map[[3]string]bool{} // that are counted: cluster, agent, replica
	for _, r := range fleet {
		for _, c := range r.Status.Clusters {
			s := seen[c.Cluster]
			s.silent = silent
			if c.LastError != "" && (s.lastError == "" || c.LastError < s.lastError) { // always the same one
				s.lastError = c.LastError
			}
			for _, session := range c.Sessions {
				if session.Draining {
					continue
				}
				if process := [3]string{c.Cluster, session.Agent, session.Replica}; !agents[process] {
					agents[process] = true
					s.agents++
				}
				if ends := session.Expires.UTC().Truncate(time.Second); s.expires.IsZero() || ends.Before(s.expires) {
					s.expires = ends
				}
			}
			seen[c.Cluster] = s
		}
	}
	return seen, silent
}

// followFleet looks at all replicas until ctx ends, and queues the Clusters whose agents
// came or went.
func (t *tunnelRun) followFleet(ctx context.Context) error {
	t.states.begin(t.now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	var next time.Time // before it there is no look
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-t.Refused:
			t.tellRefusal(ctx, err)
			continue
		case <-t.Changed:
			timer.Reset(time.Until(next))
			continue
		case <-timer.C:
		}
		began := time.Now()
		seen, silent := fleetClusters(t.Server.Fleet(ctx))
		if ctx.Err() != nil {
			return nil
		}
		t.states.noteFleet(seen, silent, t.Server.LastRevoked, t.now())
		t.connected.show(t.states.countConnected())
		took := time.Since(began)
		next = time.Now().Add(max(changeInterval, 10*took))
		timer.Reset(max(fleetInterval, 10*took))
	}
}

// refusals are what the Events of a Cluster tell of, with the advice.
var refusals = map[tunnel.Code]string{
	tunnel.CodeTokenUsed:          "as many machines as an invitation is for have used it; machines that are made from now on get a new one",
	tunnel.CodeTokenUnknown:       "the invitation on its machine is void: all of the Cluster's were revoked, or the record of it is gone; in a minute or two its Secret has a new one, for machines that are made then",
	tunnel.CodeTokenExpired:       "the machine was made long ago and has started only now: make it anew",
	tunnel.CodeRevoked:            "its machine is from a time when the Cluster had no label, or was another one: make it anew",
	tunnel.CodeCertificateExpired: "it was off for too long: make its machine anew",
}

// tellRefusal tells of an agent that was refused, if it has proven which cluster's it is.
func (t *tunnelRun) tellRefusal(ctx context.Context, err error) {
	refused, ok := errors.AsType[*tunnel.Error](err)
	if !ok || refusals[refused.Code] == "" {
		return
	}
	key, tracked := secretName(refused.Cluster), false
	t.states.change(key, func(s *tunnelState) { s.agentsMoved, tracked = true, true }) // its Secret may have that invitation
	u := t.kind.DeepCopy()
	if !tracked || t.mgr.GetCache().Get(ctx, key, u) != nil {
		return
	}
	message := fmt.Sprintf("an agent was refused: %s: %s", refused.Code, refusals[refused.Code])
	if t.events.tell(u, corev1.EventTypeWarning, reasonAgentRefused, message, "") {
		log.FromContext(ctx).Info(message, "cluster", key.String())
	}
}

// tunnelStates is what is known of the Clusters with the label, beside what the API server
// holds.
type tunnelStates struct {
	clusterMap[tunnelState] // its mu guards the fields below, too

	queue  workqueue.TypedRateLimitingInterface[reconcile.Request]
	began  time.Time // when this process began to look; zero before
	looked bool      // at the fleet, once at least
	silent string    // of the last look, for Clusters that no replica names
	fleet  map[string]tunnelSeen
	shown  map[types.NamespacedName]shownCluster
}

// shownCluster is what the watch has shown of the Clusters of one name.
type shownCluster struct {
	uid    types.UID // of the one that is there; "" if it is gone
	paused bool      // when it was shown last
	// ended says that a Cluster which was not paused has gone, or is being deleted: the
	// tunnel of its record must end.
	ended bool
	// off is the last resourceVersion without the label, of one that was not paused.
	off string
}

// tunnelState is one Cluster's.
type tunnelState struct {
	key       types.NamespacedName
	seen      tunnelSeen
	changedAt time.Time // when agents came or went, or the replicas that answer changed
	checkedAt time.Time // when the invitation was compared with the server's; zero: it has to be
	// agentsMoved says that agents came, went or were refused since checkedAt.
	agentsMoved bool
	invited     tunnel.Invitation // that was made last; the Secret may not have it yet
	problem     string            // why the Secret for the machines is not written; "" if it is
	payload     string            // "set:" and what was set last
	condition   *conditionWrite
}

// noteStart keeps the queue that the controller is started with.
func (l *tunnelStates) noteStart(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = queue
	return nil
}

func (l *tunnelStates) begin(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = now
}

// age returns how long this process has looked at the fleet; false before the first look.
func (l *tunnelStates) age(now time.Time) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.IsZero() {
		return 0, false
	}
	return now.Sub(l.began), l.looked
}

// noteClusters comes before other predicates, and lets all events pass.
func (l *tunnelStates) noteClusters() predicate.TypedPredicate[*unstructured.Unstructured] {
	note := func(u *unstructured.Unstructured, gone bool) bool {
		l.noteCluster(u, gone)
		return true
	}
	return predicate.TypedFuncs[*unstructured.Unstructured]{
		CreateFunc: func(e event.TypedCreateEvent[*unstructured.Unstructured]) bool { return note(e.Object, false) },
		UpdateFunc: func(e event.TypedUpdateEvent[*unstructured.Unstructured]) bool { return note(e.ObjectNew, false) },
		DeleteFunc: func(e event.TypedDeleteEvent[*unstructured.Unstructured]) bool { return note(e.Object, true) },
	}
}

// noteCluster keeps what the watch shows. It sees all of it; a controller whose queue is full
// may find only another Cluster of the name.
func (l *tunnelStates) noteCluster(u *unstructured.Unstructured, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, paused := l.shown[nameOf(u)], clusterapi.IsPaused(u)
	replaced := s.uid != "" && s.uid != u.GetUID() && !s.paused // in a gap of the watch
	s.ended = s.ended || replaced || !paused && (gone || u.GetDeletionTimestamp() != nil)
	s.uid, s.paused = u.GetUID(), paused
	if _, off := tunnelLabel(u); off && !paused {
		s.off = u.GetResourceVersion()
	}
	if gone {
		s.uid = ""
	}
	l.shown[nameOf(u)] = s
}

// shownOf returns what the watch has shown of a name; false if it has shown nothing. What was
// before matters only if there is a record of it.
func (l *tunnelStates) shownOf(key types.NamespacedName, recorded bool) (shownCluster, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.shown[key]
	if s.ended = s.ended && recorded; ok {
		l.shown[key] = s
	}
	return s, ok
}

// forgetShown forgets what was shown of a name, unless a Cluster has it again.
func (l *tunnelStates) forgetShown(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown[key].uid == "" {
		delete(l.shown, key)
	}
}

// track has the Cluster's agents looked at.
func (l *tunnelStates) track(key types.NamespacedName, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clusters[key] == nil {
		l.clusters[key] = &tunnelState{seen: l.seenLocked(key), changedAt: now}
	}
}

// seenLocked is what the last look said of the cluster.
func (l *tunnelStates) seenLocked(key types.NamespacedName) tunnelSeen {
	seen, ok := l.fleet[key.String()]
	if !ok {
		seen.silent = l.silent
	}
	return seen
}

// get returns a copy of the Cluster's state; the zero value if it is not tracked.
func (l *tunnelStates) get(key types.NamespacedName) (state tunnelState) {
	l.change(key, func(s *tunnelState) { state = *s })
	return state
}

// noteFleet keeps what a look at the fleet has shown, and queues the Clusters of which that
// is new. lastRevoked must not block.
func (l *tunnelStates) noteFleet(seen map[string]tunnelSeen, silent string, lastRevoked func(cluster string) time.Time, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.looked
	l.looked, l.fleet, l.silent = true, seen, silent
	for key, s := range l.clusters {
		next := l.seenLocked(key)
		next.revoked = lastRevoked(key.String())
		if !first && next == s.seen {
			continue
		}
		moved := next.agents != s.seen.agents || next.agents == 0 && next.lastError != s.seen.lastError
		s.agentsMoved = s.agentsMoved || moved
		if moved || (next.silent == "") != (s.seen.silent == "") || first {
			s.changedAt = now
		}
		if !next.revoked.Equal(s.seen.revoked) {
			s.checkedAt = time.Time{}
		}
		s.seen = next
		if l.queue != nil {
			l.queue.Add(reconcile.Request{NamespacedName: key})
		}
	}
}

// countConnected returns how many Clusters with the label have an agent, and how many have
// none.
func (l *tunnelStates) countConnected() (with, without int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.clusters {
		if s.seen.agents > 0 {
			with++
		} else {
			without++
		}
	}
	return with, without
}
