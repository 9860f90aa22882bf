package propagate

import (
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/internal/controller"
)

const (
	maxTold  = 4096             // Events
	patience = 30 * time.Second // with a cache that doesn't show what was written
)

// writeTracker is the only state that the API server does not hold. It may be lost at
// any time, at the cost of a few conflicts.
type writeTracker struct {
	mu      sync.Mutex         // guards all below
	written map[string]written // by Object.String, until the cache shows it
	told    map[string]time.Time
}

type written struct {
	version string
	at      time.Time
}

func newWriteTracker() *writeTracker {
	return &writeTracker{written: map[string]written{}, told: map[string]time.Time{}}
}

// noteWrite notes a write; its echo is waited for.
func (l *writeTracker) noteWrite(object, version string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[object] = written{version, now}
}

// caughtUp reports whether the cache shows what was written last. cached is nil
// if it has no such object, and at is the resourceVersion that it is at.
func (l *writeTracker) caughtUp(object string, cached metav1.Object, at string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.written[object]
	if !ok {
		return true
	}
	version := at // one that is gone again: the cache is past the write then
	if cached != nil {
		version = cached.GetResourceVersion()
	}
	shown := !controller.Older(version, w.version)
	if !shown && now.Sub(w.at) < patience {
		return false
	}
	delete(l.written, object)
	return true
}

// isNewEvent reports whether the Event is new.
func (l *writeTracker) isNewEvent(event string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.told[event]; ok {
		return false
	}
	if len(l.told) >= maxTold {
		maps.DeleteFunc(l.told, func(_ string, at time.Time) bool { return now.Sub(at) > controller.EventWindow })
	}
	if len(l.told) < maxTold {
		l.told[event] = now
	}
	return true
}
