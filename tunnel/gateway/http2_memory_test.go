package gateway_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/causewayproject/causeway/tunnel/gateway"
)

// liveHeap is what lives in the heap.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// h2sender sends on streams as much as the door lets it.
type h2sender struct {
	*h2wire
	pings   byte
	initial int // the door's window for a stream
	conn    int
	windows map[uint32]int
	sent    map[uint32]int
}

// sync handles what has come, up to the answer of a ping.
func (s *h2sender) sync() {
	s.t.Helper()
	s.pings++
	s.WritePing(false, [8]byte{s.pings})
	for {
		f, err := s.ReadFrame()
		if err != nil {
			s.t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if v, ok := f.Value(http2.SettingInitialWindowSize); ok && !f.IsAck() {
				s.initial = int(v)
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				s.conn += int(f.Increment)
			} else {
				s.windows[f.StreamID] += int(f.Increment)
			}
		case *http2.PingFrame:
			if f.IsAck() && f.Data[0] == s.pings {
				return
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			s.t.Fatalf("got %v", f)
		}
	}
}

// send sends at most n bytes on a stream, and returns how many it was.
func (s *h2sender) send(id uint32, n int) int {
	n = min(n, s.windows[id], s.conn, 16<<10)
	if n > 0 {
		s.WriteData(id, false, make([]byte, n))
		s.windows[id] -= n
		s.conn -= n
		s.sent[id] += n
	}
	return n
}

// fill sends on all streams until nothing more may be sent.
func (s *h2sender) fill() {
	for idle := 0; idle < 3; {
		s.sync()
		idle++
		for id := range s.windows {
			for s.send(id, 16<<10) > 0 {
				idle = 0
			}
		}
	}
}

// A client that was let in makes the door hold at most 64 KiB for a stream whose
// target reads nothing.
func TestHTTP2MemoryUnread(t *testing.T) {
	const most = 64 << 10
	for _, tt := range []struct {
		name    string
		streams int
		acks    bool
		read    int // by each target, before it stops
		shared  int64
	}{
		{"reads nothing", 200, true, 0, 0},
		{"the client acknowledges no SETTINGS", 200, false, 0, 0},
		// Such streams share what windows may grow by.
		{"has read much", 12, true, 9 << 20, 2 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var readers sync.WaitGroup
			b := newH2Bed(t, func(g *gateway.Gateway) {
				g.Dial = func(context.Context, gateway.Request) (net.Conn, error) {
					near, far := net.Pipe()
					t.Cleanup(func() { far.Close() })
					if tt.read > 0 {
						readers.Go(func() { io.CopyN(io.Discard, far, int64(tt.read)) })
					}
					return near, nil
				}
			})
			before := liveHeap()
			s := &h2sender{h2wire: newH2Wire(b), conn: 1<<16 - 1, initial: 1<<16 - 1, windows: map[uint32]int{}, sent: map[uint32]int{}}
			s.h2wire.conn.SetDeadline(time.Now().Add(2 * time.Minute))
			s.sync()
			if tt.acks {
				s.WriteSettingsAck()
			} else {
				s.initial = 1<<16 - 1
			}
			for i := range tt.streams {
				id := uint32(2*i + 1)
				s.windows[id] += s.initial
				s.headers(id, ":method", "CONNECT", ":authority", "a:1")
			}
			s.fill() // now Dial has been called for all
			read := make(chan struct{})
			go func() {
				readers.Wait()
				close(read)
			}()
			for stopped := false; !stopped; {
				select {
				case <-read:
					stopped = true
				default:
				}
				s.fill()
			}
			heap := liveHeap() - before
			sent := 0
			for _, n := range s.sent {
				sent += n - tt.read
			}
			t.Logf("%d streams: %d bytes of data and %d of heap a stream", tt.streams, sent/tt.streams, heap/int64(tt.streams))
			if sent < tt.streams*(32<<10) {
				t.Errorf("the door has taken %d bytes only", sent)
			}
			if limit := int64(tt.streams)*most + tt.shared; int64(sent) > limit || heap > limit+int64(tt.streams)*(16<<10) {
				t.Errorf("got %d bytes of data and %d of heap, want %d bytes", sent, heap, limit)
			}
		})
	}
}
