package mux_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

// scripted is a carrier that delivers bytes and ends, and takes everything.
type scripted struct {
	net.Conn // for what is not used
	bytes    []byte
	closed   chan struct{}
}

func (c *scripted) Read(p []byte) (int, error) {
	if len(c.bytes) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.bytes)
	c.bytes = c.bytes[n:]
	return n, nil
}

func (c *scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (c *scripted) SetWriteDeadline(time.Time) error { return nil }
func (c *scripted) Close() error                     { close(c.closed); return nil }
func (c *scripted) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *scripted) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// FuzzFrames: whatever comes, the session ends with a LostError, its streams
// too unless their end came, and the memory is bounded.
func FuzzFrames(f *testing.F) {
	f.Add(dataFrame(syn, 1, "hello"))
	f.Add(append(dataFrame(syn, 1, "hello"), header(window, fin|rst, 1, 0)...))
	f.Add(append(dataFrame(syn, 1, "hello"), dataFrame(0, 1, string(make([]byte, 3000)))...))
	f.Add(append(header(ping, syn, 0, 7), header(goAway, 0, 0, 0)...))
	f.Add(append(header(window, syn, 3, 1<<20), header(window, rst, 3, 9)...))
	f.Add(append(header(window, syn, 1, 0), header(window, spare, 1, 100)...))
	f.Add(append(header(window, syn, 1, 1<<20), header(window, spare, 1, 0)...))
	f.Add(header(data, syn, 1, 1<<32-1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64<<10 {
			t.Skip("long inputs are slow to minimise, and say no more")
		}
		c := &scripted{bytes: b, closed: make(chan struct{})}
		s, streams := mux.ReadAll(c, &mux.Config{MaxStreams: 16})
		<-c.closed
		var lost *mux.LostError
		if err := s.Err(); !errors.As(err, &lost) {
			t.Errorf("got error %v, want a LostError", err)
		}
		held := 0
		for _, st := range streams {
			held += st.BufferBytes()
		}
		if held > 2*len(b)+len(streams)*16<<10 {
			t.Errorf("%d bytes took %d", len(b), held)
		}
		for _, st := range streams {
			if _, err := io.Copy(io.Discard, st); err != nil {
				var reset *mux.ResetError
				if !errors.As(err, &lost) && !errors.As(err, &reset) {
					t.Errorf("got error %v from the stream", err)
				}
			}
			st.Close()
		}
		left := s.Leftovers()
		delete(left, "incoming")
		delete(left, "refused")
		if len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
}
