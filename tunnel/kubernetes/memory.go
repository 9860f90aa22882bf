package kubernetes

import (
	"sync"
	"time"
)

// memory remembers answers for a while, a bounded number of them. It is safe
// for concurrent use. The zero value is empty.
type memory[K comparable, V any] struct {
	mu      sync.Mutex // guards the fields below
	entries map[K]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time
}

// get returns what is known, and whether it counts still.
func (m *memory[K, V]) get(key K) (value V, fresh, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, known := m.entries[key]
	return e.value, time.Now().Before(e.until), known
}

// put remembers an answer that counts until then, and for as long as there is room.
// Where there is none, those that are over go first, then any.
func (m *memory[K, V]) put(key K, value V, until time.Time, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = map[K]entry[V]{}
	}
	if _, ok := m.entries[key]; !ok && len(m.entries) >= most {
		m.makeRoomLocked(time.Now(), most)
	}
	m.entries[key] = entry[V]{value, until}
}

func (m *memory[K, V]) forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}

// makeRoomLocked leaves a tenth free, so that it is rarely needed.
func (m *memory[K, V]) makeRoomLocked(now time.Time, most int) {
	for key, e := range m.entries {
		if !now.Before(e.until) {
			delete(m.entries, key)
		}
	}
	for key := range m.entries {
		if len(m.entries) < most-most/10 {
			return
		}
		delete(m.entries, key)
	}
}
