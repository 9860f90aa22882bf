package session_test

import (
	"net"
	"testing"
	"testing/synctest"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/session"
)

// Nothing is written before the start, and Close waits for the goroutine that
// writes, and lets no other begin.
func TestOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		m := mux.Client(near, nil)
		control, err := m.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Close() // each message fails
		o := session.NewOutbox(control)
		failed, leave := make(chan error, 2), make(chan struct{})
		o.Add()
		synctest.Wait()
		o.Start(func(err error) {
			failed <- err
			<-leave
		})
		if err := <-failed; err == nil {
			t.Error("got no error of a session that has ended")
		}
		closed := make(chan struct{})
		go func() {
			o.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close returned before the goroutine had ended")
		default:
		}
		close(leave)
		<-closed

		o = session.NewOutbox(control)
		o.Start(func(err error) { failed <- err })
		o.Close()
		o.Add()
		synctest.Wait()
		if len(failed) > 0 {
			t.Errorf("got a write after Close: %v", <-failed)
		}
	})
}
