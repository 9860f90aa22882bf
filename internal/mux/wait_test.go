package mux_test

import (
	"net"
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
	failed bool // Read returned an error
	waits  *int // how often it waited
}

func (w *waiting) Wait(idle func()) {
	if len(w.ahead) > 0 || w.failed || w.err != nil {
		return
	}
	if idle(); w.waits != nil {
		*w.waits++
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

// A session waits once for what comes at once, and meanwhile holds no buffer.
func TestWaitForCarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var waits int
		s := mux.Server(&waiting{Conn: near, waits: &waits}, nil)
		defer s.Close()
		p := peer{far, t}
		if _, err := readFrame(p); err != nil { // the first ping
			t.Fatal(err)
		}
		pong := header(ping, ack, 0, 7)
		for _, step := range []struct {
			send []byte
			want int  // waits
			half bool // of a frame came
		}{
			{nil, 1, false},
			{pong, 2, false},
			{slices.Concat(pong, pong, pong), 3, false},
			{pong[:5], 3, true},
			{pong[5:], 4, false},
			{slices.Concat(pong, pong[:5]), 4, true},
			{pong[5:], 5, false},
		} {
			if step.send != nil {
				p.send(step.send)
			}
			synctest.Wait()
			if waits != step.want || s.Reading() != step.half {
				t.Errorf("after %d bytes: got %d waits, a buffer: %t; want %d, %t", len(step.send), waits, s.Reading(), step.want, step.half)
			}
		}
		far.Close()
		<-s.Done()
		wantLost(t, s.Err())
	})
}
