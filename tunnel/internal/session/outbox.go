package session

import (
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// maxOutbox is how many control messages may wait for a slow reader.
const maxOutbox = 256

// outbox writes messages to a control stream, in order, and its callers do not
// wait. It has a goroutine only while messages wait, which is seldom: an idle
// session would hold its stack.
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

// start begins to write, and first what was added before. It calls failed, once, if
// a message can't be written; failed must not call close, which waits for it.
func (o *outbox) start(failed func(error)) {
	o.failed = failed
	o.mu.Lock()
	defer o.mu.Unlock()
	o.started = true
	o.wakeLocked()
}

// add queues a message. It reports whether there was room.
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

// isBehind reports whether the other end reads too little of what it has asked for.
func (o *outbox) isBehind() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) > 4
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

// close drops what was not written, and waits for the goroutine. The multiplexer
// has to be closed already, or a write that is blocked would not end.
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
		o.mu.Lock()
		queue, last := o.queue, o.last
		o.writing = !o.closed && (len(queue) > 0 || last)
		if !o.writing {
			o.mu.Unlock()
			return
		}
		o.queue = nil
		o.mu.Unlock()
		err := o.send(queue)
		if err == nil && last {
			err = o.control.CloseWrite()
		}
		if err != nil {
			o.failed(err)
		}
		if err != nil || last {
			return // writing stays true, so that no other goroutine starts
		}
	}
}

func (o *outbox) send(queue []*wire.Message) error {
	// A deadline's timer would keep a session that has died in memory.
	defer o.control.SetWriteDeadline(time.Time{})
	for _, msg := range queue {
		if err := wire.Write(slowWriter{o.control}, msg); err != nil {
			return err
		}
	}
	return nil
}

// slowWriter has a minute for each piece.
type slowWriter struct{ *mux.Stream }

func (w slowWriter) Write(p []byte) (n int, err error) {
	for piece := range slices.Chunk(p, wire.MaxControl) {
		w.SetWriteDeadline(time.Now().Add(time.Minute))
		m, err := w.Stream.Write(piece)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}
