package session

import (
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// maxOutbox is how many control messages may wait for a slow reader.
const maxOutbox = 256

// An outbox writes messages to a control stream, in order, without making
// who sends them wait. It has a goroutine only while there is something to
// write: most of the time there is nothing.
type outbox struct {
	control *mux.Stream
	failed  func(error) // set by start

	mu      sync.Mutex // guards the fields below
	queue   []*wire.Message
	last    bool // nothing comes after queue
	started bool
	closed  bool
	writing bool // there is a goroutine

	writers sync.WaitGroup
}

// start lets messages out, those that wait first. failed is called, once, if
// one can't be written; it must not call close.
func (o *outbox) start(failed func(error)) {
	o.failed = failed
	o.mu.Lock()
	defer o.mu.Unlock()
	o.started = true
	o.wakeLocked()
}

// add reports whether there was room.
func (o *outbox) add(m *wire.Message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	room := len(o.queue) < maxOutbox
	if room && !o.last && !o.closed {
		o.queue = append(o.queue, m)
		o.wakeLocked()
	}
	return room
}

// finish ends the control stream after what was added.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.last {
		o.last = true
		o.wakeLocked()
	}
}

// close lets nothing out any more, and waits for the goroutine; the session
// has to have ended, which ends a write.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.writers.Wait()
}

func (o *outbox) wakeLocked() {
	if o.started && !o.closed && !o.writing {
		o.writing = true
		o.writers.Go(o.write)
	}
}

// write writes until nothing waits.
func (o *outbox) write() {
	for {
		queue, last, ok := o.take()
		if !ok {
			return
		}
		err := o.send(queue)
		if err == nil && last {
			err = o.control.CloseWrite()
		}
		if err != nil {
			o.failed(err)
			return
		}
		if last {
			return
		}
	}
}

// take returns what is to be written; ok is false if that is nothing, and the
// goroutine ends. After one that failed or wrote the last there is no other.
func (o *outbox) take() (queue []*wire.Message, last, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.queue) == 0 && !o.last {
		o.writing = false
		return nil, false, false
	}
	queue, o.queue = o.queue, nil
	return queue, o.last, true
}

func (o *outbox) send(queue []*wire.Message) error {
	// A deadline's timer would keep a session that has died in memory.
	defer o.control.SetWriteDeadline(time.Time{})
	for _, msg := range queue {
		o.control.SetWriteDeadline(time.Now().Add(time.Minute))
		if err := wire.Write(o.control, msg); err != nil {
			return err
		}
	}
	return nil
}
