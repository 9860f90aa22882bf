package socket

// Mutex is a mutex that is held while the network blocks. Unlike a goroutine
// that waits for a sync.Mutex, one that waits for this channel counts as idle in
// a bubble of testing/synctest, so that the clock of a test goes on.
type Mutex chan struct{}

// NewMutex returns a Mutex that is free.
func NewMutex() Mutex { return make(Mutex, 1) }

// Lock waits until the mutex is free, and takes it.
func (m Mutex) Lock() { m <- struct{}{} }

// TryLock takes the mutex if it is free, and reports whether it was.
func (m Mutex) TryLock() bool {
	select {
	case m <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock frees the mutex.
func (m Mutex) Unlock() { <-m }
