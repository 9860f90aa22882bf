package controllers

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

const (
	eventWindow = time.Hour // in which the same Event is told once
	maxEvents   = 4096      // that are remembered
	maxNote     = 1024      // bytes
)

// eventLog creates Events by the manager's recorder, each once in eventWindow: the
// recorder itself writes again for a repeated one. The zero value is not ready for
// use: recorder is required.
type eventLog struct {
	recorder record.EventRecorder

	mu   sync.Mutex // guards told
	told map[string]time.Time
}

// tell creates an Event about the object, which has this UID, unless it was told
// already. version is the resourceVersion that the Event is about, if any. The Event
// holds no secret. It reports whether it was new.
func (l *eventLog) tell(object runtime.Object, uid types.UID, kind, reason, message, version string) bool {
	if !l.isNew(fmt.Sprintf("%q %q %q %q %q", uid, kind, reason, message, version), time.Now()) {
		return false
	}
	l.recorder.Event(object, kind, reason, cutText(message, maxNote))
	return true
}

// isNew notes the Event, and reports whether it was not told in eventWindow.
func (l *eventLog) isNew(event string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		l.told = map[string]time.Time{}
	}
	if at, ok := l.told[event]; ok && now.Sub(at) < eventWindow {
		return false
	}
	if len(l.told) >= maxEvents {
		maps.DeleteFunc(l.told, func(_ string, at time.Time) bool { return now.Sub(at) >= eventWindow })
	}
	if len(l.told) < maxEvents {
		l.told[event] = now
	}
	return true
}

// cutText shortens text to n bytes, at a rune's border.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
