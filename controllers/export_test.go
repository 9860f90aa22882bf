package controllers

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// RewriteDelays returns the waits before each write, if somebody else changes the Secret
// after each.
func RewriteDelays(writes int) (delays []time.Duration) {
	p := &podSecretRun{wrote: map[string]podSecretWrite{}}
	now, secret := time.Now(), propagate.EnvSecret{Namespace: "a"}
	for range writes {
		p.noteRewrite(secret, now)
		delays = append(delays, p.untilRewrite(secret, now))
		now = now.Add(delays[len(delays)-1])
		if p.untilRewrite(secret, now) > 0 || p.untilRewrite(propagate.EnvSecret{Namespace: "a", Version: "2"}, now) > 0 {
			return nil
		}
	}
	return delays
}

// TurnsIn returns how many turns an object has that changes all the time, and how many objects
// are remembered when another one has one later.
func TurnsIn(d time.Duration) (turns, kept int) {
	t := &namespaceTurns{paid: map[reconcile.Request]time.Time{}, spared: map[reconcile.Request]bool{}}
	began := time.Now()
	for now := began; now.Before(began.Add(d)); {
		wait := t.untilPaid(requestOf("a", "one"), now)
		if now = now.Add(wait); wait == 0 {
			turns++
		}
	}
	if t.untilPaid(requestOf("a", "two"), began.Add(2*d)) > 0 {
		return 0, 0
	}
	return turns, len(t.paid)
}

// For the tests of what a cache keeps.
var (
	TrimClusters       = trimClusters
	TrimInfrastructure = trimInfrastructure
	TrimNamespace      = trimNamespace
	SpreadTime         = spreadTime
	WriteError         = writeError
)

// SetPlan replaces [provider.Plan].
func (r *KubeconfigReconciler) SetPlan(plan func(provider.Cluster, provider.Secrets, provider.Config) (provider.Action, error)) {
	r.plan = plan
}

// SetNow replaces [time.Now].
func (r *TunnelReconciler) SetNow(now func() time.Time) { r.now = now }

// RegisterMetrics registers those of the other reconcilers, as their SetupWithManager does.
func RegisterMetrics() error {
	_, _, err := newProxyMetrics()
	tunnels, _, err2 := newTunnelMetrics()
	tunnels.show(0, 0)
	return errors.Join(err, err2)
}

// WritesRemembered returns how many writes are remembered, of one a second.
func WritesRemembered(writes int) int {
	l, now := &writeLog{}, time.Now()
	for n := range writes {
		l.noteWrite(fmt.Sprint(n), lastWrite{version: "1", at: now.Add(time.Duration(n) * time.Second)})
	}
	return len(l.writes)
}

// SetProbeTimeout replaces the time that ends a probe.
func (r *KubeconfigReconciler) SetProbeTimeout(d time.Duration) { r.probeTimeout = d }

// SetKindInterval replaces the time between two searches for kinds.
func (r *KubeconfigReconciler) SetKindInterval(d time.Duration) { r.kindInterval = d }

// EventsRemembered returns how many of the Events of an object are remembered, and whether
// the last one is told again, and that of another object.
func EventsRemembered(events int) (remembered int, again, other bool) {
	l, now := &eventLog{}, time.Now()
	l.isNew("b", "x", now)
	for n := range events {
		l.isNew("a", strings.Repeat("text", n), now.Add(time.Duration(n)))
	}
	again, other = l.isNew("a", strings.Repeat("text", events-1), now), l.isNew("b", "x", now)
	remembered = len(l.told["a"])
	if l.isNew("c", "x", now.Add(eventWindow+eventSweep)); len(l.told) != 1 {
		remembered = -1 // what is old is not forgotten
	}
	return remembered, again, other
}

// WriteShown reports whether a cache that has an object in the version, "" for none, shows a
// write of it.
func WriteShown(written string, deleted bool, cached string) bool {
	return lastWrite{version: written, deleted: deleted}.isShown(cached)
}

// SetMostEnded replaces the number of tunnels that a namespace may have had.
func (r *TunnelReconciler) SetMostEnded(n int) { r.mostEnded = n }

// KeepData sets how many bytes of Secrets and ConfigMaps all caches keep, until restore.
func KeepData(most int) (restore func()) {
	set := func(most int) (before int) {
		keptData().mu.Lock()
		defer keptData().mu.Unlock()
		before, keptData().most = keptData().most, most
		return before
	}
	before := set(most)
	return func() { set(before) }
}

// NewTrim returns the transformation with a bound of its own, and what it holds of a namespace.
func NewTrim(most int) (trim func(any) (any, error), held func(namespace string) int) {
	k := &dataShares{most: most, held: map[string]int{}}
	return k.trim, func(namespace string) int {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.held[namespace]
	}
}

// TakeTurns returns a client whose watches take turns.
func TakeTurns(client *http.Client) *http.Client { return takeTurns(client, make(chan struct{}, 1)) }
