package tunnel

import (
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

// maxOutbox is how many control messages may wait for a slow reader.
const maxOutbox = 256

// An outbox writes messages to a control stream, in order, without making
// who sends them wait.
type outbox struct {
	control *mux.Stream
	wake    chan struct{} // holds one

	mu    sync.Mutex // guards the fields below
	queue []*message
	last  bool // nothing comes after queue
}

func newOutbox(control *mux.Stream) outbox {
	return outbox{control: control, wake: make(chan struct{}, 1)}
}

// add reports whether there was room.
func (o *outbox) add(m *message) bool {
	o.mu.Lock()
	room := len(o.queue) < maxOutbox
	if room && !o.last {
		o.queue = append(o.queue, m)
	}
	o.mu.Unlock()
	o.signal()
	return room
}

// finish ends the control stream after what was added.
func (o *outbox) finish() {
	o.mu.Lock()
	o.last = true
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) take() (queue []*message, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	queue, o.queue = o.queue, nil
	return queue, o.last
}

// run writes until it is finished, which is no error, or the session ends or
// does not take a message.
func (o *outbox) run(m *mux.Session) error {
	for {
		queue, last := o.take()
		if err := o.write(queue); err != nil {
			return err
		}
		if last {
			return o.control.CloseWrite()
		}
		select {
		case <-o.wake:
		case <-m.Done():
			return m.Err()
		}
	}
}

func (o *outbox) write(queue []*message) error {
	// A deadline's timer would keep a session that has died in memory.
	defer o.control.SetWriteDeadline(time.Time{})
	for _, msg := range queue {
		o.control.SetWriteDeadline(time.Now().Add(time.Minute))
		if err := writeMessage(o.control, msg); err != nil {
			return err
		}
	}
	return nil
}
