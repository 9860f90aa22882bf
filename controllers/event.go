package controllers

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/printable"
)

const (
	eventWindow = time.Hour   // in which the same Event is told once
	eventSweep  = time.Minute // between two looks for what is older
	maxEvents   = 32          // that are remembered of an object; whose texts may be a tenant's
	maxNote     = 1024        // bytes
)

// eventLog creates Events by the manager's recorder, each once in eventWindow: the
// recorder itself writes again for a repeated one. The zero value is not ready for
// use: recorder is required.
type eventLog struct {
	recorder record.EventRecorder

	mu    sync.Mutex                                 // guards the fields below
	told  map[string]map[[sha256.Size]byte]time.Time // by object
	swept time.Time
}

// tell creates an Event about the object, unless it was told already. version is the
// resourceVersion that the Event is about, if any. The Event holds no secret. It reports whether it
// was new.
func (l *eventLog) tell(object client.Object, kind, reason, message, version string) bool {
	of := cmp.Or(string(object.GetUID()), nameOf(object).String())
	if !l.isNew(of, fmt.Sprintf("%q %q %q %q", kind, reason, message, version), time.Now()) {
		return false
	}
	l.recorder.Event(object, kind, reason, printable.Text(message, maxNote))
	return true
}

// isNew notes the Event of an object, and reports whether it was not told in eventWindow.
func (l *eventLog) isNew(object, event string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetLocked(now)
	told, key := l.told[object], sha256.Sum256([]byte(event))
	if at, ok := told[key]; ok && now.Sub(at) < eventWindow {
		return false
	}
	if told == nil {
		told = map[[sha256.Size]byte]time.Time{}
		l.told[object] = told
	}
	told[key] = now
	for len(told) > maxEvents {
		dropOldest(told, func(at time.Time) time.Time { return at })
	}
	return true
}

// dropOldest takes out what is the oldest.
func dropOldest[K comparable, V any](of map[K]V, at func(V) time.Time) {
	var oldest K
	first := true
	for key, value := range of {
		if first || at(value).Before(at(of[oldest])) {
			oldest, first = key, false
		}
	}
	delete(of, oldest)
}

// forgetLocked removes what is older than eventWindow.
func (l *eventLog) forgetLocked(now time.Time) {
	if l.told == nil {
		l.told = map[string]map[[sha256.Size]byte]time.Time{}
	}
	if now.Sub(l.swept) < eventSweep {
		return
	}
	l.swept = now
	maps.DeleteFunc(l.told, func(_ string, told map[[sha256.Size]byte]time.Time) bool {
		maps.DeleteFunc(told, func(_ [sha256.Size]byte, at time.Time) bool { return now.Sub(at) >= eventWindow })
		return len(told) == 0
	})
}
