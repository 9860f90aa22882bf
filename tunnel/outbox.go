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

	mu    sync.Mutex // guards the field below
	queue []*message
}

// add reports whether there was room.
func (o *outbox) add(m *message) bool {
	o.mu.Lock()
	room := len(o.queue) < maxOutbox
	if room {
		o.queue = append(o.queue, m)
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return room
}

func (o *outbox) take() []*message {
	o.mu.Lock()
	defer o.mu.Unlock()
	queue := o.queue
	o.queue = nil
	return queue
}

// run writes until the session ends or does not take a message.
func (o *outbox) run(m *mux.Session) error {
	for {
		for _, msg := range o.take() {
			o.control.SetWriteDeadline(time.Now().Add(time.Minute))
			if err := writeMessage(o.control, msg); err != nil {
				return err
			}
		}
		select {
		case <-o.wake:
		case <-m.Done():
			return m.Err()
		}
	}
}
