package mux_test

import (
	"net"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/causewayproject/causeway/internal/mux"
)

// waiting is a carrier with Wait, which reads ahead.
type waiting struct {
	net.Conn
	ahead  []byte
	err    error
	failed bool   // Read returned an error
	waits  *int   // how often it waited
	stack  string // the goroutine that waited last
}

func (w *waiting) Wait(idle func()) {
	if len(w.ahead) > 0 || w.failed || w.err != nil {
		return
	}
	if idle(); w.waits != nil {
		*w.waits++
		p := make([]byte, 30)
		w.stack = string(p[:runtime.Stack(p, false)])
	}
	p := make([]byte, 100)
	n, err := w.Conn.Read(p)
	w.ahead, w.err = p[:n], err
}

func (w *waiting) Read(p []byte) (int, error) {
	if len(w.ahead) > 0 {
		n := copy(p, w.ahead)
		w.ahead = w.ahead[n:]
		return n, nil
	}
	n, err := 0, w.err
	if err == nil {
		n, err = w.Conn.Read(p)
	}
	w.failed = err != nil
	return n, err
}

func waitingPair(t testing.TB) (client, server net.Conn) {
	a, b := tcpPair(t)
	return &waiting{Conn: a}, &waiting{Conn: b}
}

// A session waits once for what comes at once, and meanwhile holds no buffer. After a ping it waits with a
// new stack.
func TestWaitForCarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var waits int
		carrier := &waiting{Conn: near, waits: &waits}
		s := mux.Server(carrier, nil)
		defer s.Close()
		p := peer{far, t}
		if _, err := readFrame(p); err != nil { // the first ping
			t.Fatal(err)
		}
		pong, credit := header(ping, ack, 0, 7), header(window, 0, 9, 0)
		synctest.Wait()
		for _, step := range []struct {
			send []byte
			want int  // waits
			half bool // of a frame came
			same bool // as before: the stack
		}{
			{nil, 1, false, true},
			{pong, 2, false, false},
			{slices.Concat(pong, pong, pong), 3, false, false},
			{credit, 4, false, true},
			{credit, 5, false, true},
			{pong[:5], 5, true, true},
			{pong[5:], 6, false, false},
			{slices.Concat(pong, pong[:5]), 6, true, true},
			{pong[5:], 7, false, false},
		} {
			before := carrier.stack
			if step.send != nil {
				p.send(step.send)
			}
			synctest.Wait()
			if waits != step.want || s.Reading() != step.half {
				t.Errorf("after %x: got %d waits, a buffer: %t; want %d, %t", step.send, waits, s.Reading(), step.want, step.half)
			}
			if (carrier.stack == before) != step.same {
				t.Errorf("after %x: %s waits, and before %s; want the same: %t", step.send, carrier.stack, before, step.same)
			}
		}
		far.Close()
		<-s.Done()
		wantLost(t, s.Err())
	})
}
