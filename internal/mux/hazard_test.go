package mux_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

func wantTimeout(t testing.TB, err error) {
	t.Helper()
	var timeout net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("got error %v, want a timeout", err)
	}
}

// wantSilent is for the end of a session whose peer is silent: no deadline of a
// stream has passed.
func wantSilent(t testing.TB, err error) {
	t.Helper()
	var timeout net.Error
	if !errors.Is(err, syscall.ETIMEDOUT) || !errors.As(err, &timeout) || !timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got error %v, want ETIMEDOUT, and no deadline", err)
	}
}

func TestWriteDeadlineWhileCarrierBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := rawPeer(t, nil) // which reads nothing
		st, err := s.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		st.SetWriteDeadline(began.Add(time.Second))
		n, err := st.Write(make([]byte, 1<<20))
		wantTimeout(t, err)
		if took := time.Since(began); took != time.Second {
			t.Errorf("the write ended after %v, want 1s", took)
		}
		if queued := s.Queued(); queued != n {
			t.Errorf("%d bytes are queued, and %d were said to be", queued, n)
		}
		st.SetWriteDeadline(time.Time{})
		st.Close()
		if _, err := st.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got error %v, want net.ErrClosed", err)
		}
	})
}

func TestReadDeadlineWhileFrameIsPartlyThere(t *testing.T) {
	for _, size := range []int{100, 50000} {
		synctest.Test(t, func(t *testing.T) {
			s, p := rawPeer(t, nil)
			p.discard()
			p.send(header(window, syn, 1, 0))
			st := accept(t, s)
			f := dataFrame(0, 1, strings.Repeat("x", size))
			p.send(f[:len(f)-1])
			began := time.Now()
			st.SetReadDeadline(began.Add(time.Second))
			_, err := st.Read(make([]byte, size))
			wantTimeout(t, err)
			if took := time.Since(began); took != time.Second {
				t.Errorf("the read ended after %v, want 1s", took)
			}
			st.SetReadDeadline(time.Time{})
			p.send(f[len(f)-1:])
			read(t, st, string(f[12:]))
		})
	}
}

func TestOpenUnderContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := rawPeer(t, nil) // which reads nothing
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		opened := 0
		for ; ; opened++ {
			if _, err := s.Open(ctx, nil); err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got error %v, want the context's", err)
				}
				break
			}
		}
		if opened != mux.MaxUnsent || s.Stats().Streams != opened {
			t.Errorf("opened %d streams, and there are %d; want %d", opened, s.Stats().Streams, mux.MaxUnsent)
		}
		waiting, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := s.Accept(waiting); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v from Accept, want the context's", err)
		}
		go s.Close()
		if _, err := s.Open(t.Context(), nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got error %v from an Open that waited for room, want net.ErrClosed", err)
		}
	})
}

// No open waits for an answer, and a reset before it leaves nothing.
func TestStreamsResetBeforeAckAreForgotten(t *testing.T) {
	s, p := rawPeer(t, nil)
	const n = 10000
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range n {
			f := p.next()
			p.send(header(window, rst, f.id, 9))
		}
	}()
	streams := make([]*mux.Stream, n)
	for i := range streams {
		var err error
		if streams[i], err = s.Open(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	<-done
	for _, st := range streams {
		_, err := st.Read(make([]byte, 1))
		wantReset(t, err, 9)
	}
	if left := s.Leftovers(); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// A carrier that takes nothing is lost sooner if nothing comes from it either.
func TestCarrierThatTakesNothing(t *testing.T) {
	for _, tt := range []struct {
		talks    bool
		min, max time.Duration
	}{
		{false, 30 * time.Second, 30 * time.Second},
		{true, 5 * time.Minute, 5*time.Minute + 30*time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, p := rawPeer(t, &mux.Config{DeadAfter: -1})
			began := time.Now()
			for ended := false; !ended; {
				select {
				case <-s.Done():
					ended = true
				case <-time.After(7 * time.Second):
					if tt.talks {
						p.send(header(ping, ack, 0, 9))
					}
				}
			}
			if took := time.Since(began); took < tt.min || took > tt.max {
				t.Errorf("the session ended after %v, want %v to %v", took, tt.min, tt.max)
			}
			wantLost(t, s.Err())
			wantSilent(t, s.Err())
			synctest.Wait() // the carrier is closed after Done
			if _, err := p.Write([]byte("x")); err == nil {
				t.Error("the carrier is open")
			}
		})
	}
}

// A carrier that is given up is reset: an end would wait for what the peer does
// not acknowledge.
func TestSilentCarrierIsReset(t *testing.T) {
	a, b := tcpPair(t)
	defer b.Close()
	s := mux.Client(a, &mux.Config{ProbeAfter: 5 * time.Millisecond, DeadAfter: 20 * time.Millisecond})
	defer s.Close()
	if _, err := io.Copy(io.Discard, b); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

func TestKeepalive(t *testing.T) {
	tests := []struct {
		name   string
		config mux.Config
		every  time.Duration // the peer sends a byte
		pings  bool          // the peer answers pings
		want   time.Duration // of the session's life; zero: it lives
	}{
		{"a silent peer", mux.Config{}, 0, false, 30 * time.Second},
		{"one that answers", mux.Config{}, 0, true, 0},
		{"one that sends a byte of a frame now and then", mux.Config{}, 20 * time.Second, false, 0},
		{"one that is too slow", mux.Config{}, 31 * time.Second, false, 30 * time.Second},
		{"other times", mux.Config{ProbeAfter: time.Second, DeadAfter: 2 * time.Second}, 0, false, 2 * time.Second},
		{"no end", mux.Config{ProbeAfter: time.Second, DeadAfter: -1}, 0, false, 0},
		{"no probes", mux.Config{ProbeAfter: -1}, 0, true, 30 * time.Second},
		{"nothing", mux.Config{ProbeAfter: -1, DeadAfter: -1}, 0, false, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := rawPeer(t, &test.config)
				go func() {
					for {
						f, err := readFrame(p)
						if err != nil {
							return
						}
						if test.pings {
							p.Write(header(ping, ack, 0, f.length))
						}
					}
				}()
				if test.every > 0 {
					big := header(data, 0, 99, 200000) // of a stream that is not there
					go func() {
						for {
							select {
							case <-time.After(test.every):
							case <-s.Done():
							}
							if _, err := p.Write(big[:1]); err != nil {
								return
							}
							big = append(big[1:], 0)
						}
					}()
				}
				began := time.Now()
				select {
				case <-s.Done():
					if took := time.Since(began); took != test.want {
						t.Errorf("the session ended after %v, want %v", took, test.want)
					}
					wantLost(t, s.Err())
					wantSilent(t, s.Err())
				case <-time.After(time.Hour):
					if test.want != 0 {
						t.Errorf("the session lives after an hour, want its end after %v", test.want)
					}
				}
			})
		})
	}
}

func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, nil)
		go func() {
			for {
				f, err := readFrame(p)
				if err != nil {
					return
				}
				time.Sleep(40 * time.Millisecond)
				p.Write(header(ping, ack, 0, f.length))
			}
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		if rtt := s.Stats().RTT; rtt != 40*time.Millisecond {
			t.Errorf("got a round trip of %v at the start, want 40ms", rtt)
		}
		if rtt, err := s.Ping(t.Context()); rtt != 40*time.Millisecond || err != nil {
			t.Errorf("got a round trip of %v and error %v, want 40ms", rtt, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want the context's", err)
		}
		go s.Close()
		if _, err := s.Ping(t.Context()); !errors.Is(err, mux.ErrSessionClosed) {
			t.Errorf("got error %v, want ErrSessionClosed", err)
		}
		time.Sleep(time.Second) // the peer's goroutine ends
	})
}

// A million of them from a peer that reads none of the answers.
func TestPingFlood(t *testing.T) {
	s, p := rawPeer(t, nil)
	flood := make([]byte, 0, 12000)
	for range 1000 {
		flood = append(flood, header(ping, syn, 0, 1)...)
	}
	before := allocated()
	for range 1000 {
		p.send(flood)
	}
	if grew := allocated() - before; grew > 1<<20 {
		t.Errorf("a million pings took %d bytes, want less than a megabyte", grew)
	}
	p.send(header(ping, syn, 0, 42))
	for answers := 1; ; answers++ {
		f, err := readFrame(p)
		if err != nil {
			t.Fatal(err)
		}
		if f.kind == ping && f.flags == ack && f.length == 42 {
			break // the latest is answered
		}
		if answers > 1000 {
			t.Fatal("got a thousand answers, and none to the last ping")
		}
	}
	if goroutines := runtime.NumGoroutine(); goroutines > 50 {
		t.Errorf("there are %d goroutines", goroutines)
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// Every violation ends the session with an error that says so, and costs no
// memory.
func TestProtocolErrors(t *testing.T) {
	tests := []struct {
		name  string
		bytes []byte
	}{
		{"version", []byte{1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}},
		{"type", []byte{0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}},
		{"HTTP", []byte("HTTP/1.1 400 Bad Request\r\n\r\n")},
		{"4 GB for a stream", header(data, 0, 1, 1<<32-1)},
		{"4 GB for no stream", header(data, 0, 77, 1<<32-1)},
		{"4 GB with an opening", header(data, syn, 3, 1<<32-1)},
		{"more than the window", header(data, 0, 1, 256<<10+1)},
		{"a stream twice", header(window, syn, 1, 0)},
		{"stream 0", header(window, syn, 0, 0)},
		{"a stream of ours", header(window, syn, 2, 0)},
		{"GoAway because of an error", header(goAway, 0, 0, 1)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, p := rawPeer(t, nil)
			p.discard()
			p.send(header(window, syn, 1, 0))
			st := accept(t, s)
			before := allocated()
			go p.Write(test.bytes)
			<-s.Done()
			if grew := allocated() - before; grew > 256<<10 {
				t.Errorf("it took %d bytes of memory", grew)
			}
			var protocol *mux.ProtocolError
			if err := s.Err(); !errors.As(err, &protocol) {
				t.Errorf("got error %v, want a ProtocolError", err)
			}
			_, err := st.Read(make([]byte, 1))
			wantLost(t, err)
		})
	}
}

func TestGarbage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		s, p := rawPeer(t, nil)
		p.discard()
		garbage := make([]byte, 1000)
		for i := range garbage {
			garbage[i] = byte(random.Uint32())
		}
		garbage[0] |= 1
		go p.Write(garbage)
		<-s.Done()
		wantLost(t, s.Err())
	}
}

func TestDataAfterEnd(t *testing.T) {
	s, p := rawPeer(t, nil)
	p.send(header(window, syn|fin, 1, 0))
	st := accept(t, s)
	p.expect(frame{kind: window, flags: ack, id: 1})
	p.send(dataFrame(0, 1, "more"))
	p.expect(frame{kind: window, flags: rst, id: 1, length: mux.CodeProtocol})
	if _, err := st.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got error %v, want a reset of ours", err)
	}
	if err := s.Err(); err != nil {
		t.Errorf("the session ended: %v", err)
	}
}

// What comes for a stream that was reset here is no error.
func TestLateFramesAreDiscarded(t *testing.T) {
	s, p := rawPeer(t, nil)
	p.send(header(window, syn, 1, 0))
	st := accept(t, s)
	p.expect(frame{kind: window, flags: ack, id: 1})
	st.Reset(20)
	p.expect(frame{kind: window, flags: rst, id: 1, length: 20})
	p.send(dataFrame(0, 1, strings.Repeat("x", 100000)), dataFrame(0, 1, "x"), header(window, 0, 1, 5), header(window, fin, 1, 0))
	p.send(dataFrame(syn, 3, "hello"))
	read(t, accept(t, s), "hello")
}

// flooding is a carrier that always has small frames.
type flooding struct {
	net.Conn
	pongs []byte
	reads *atomic.Int64
}

func (e flooding) Read(p []byte) (int, error) {
	if e.reads.Add(1) < 0 {
		return 0, net.ErrClosed
	}
	return copy(p, e.pongs), nil
}

// TestFloodYields: a session that always has frames lets others run after a few.
func TestFloodYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var reads atomic.Int64
	near, far := net.Pipe()
	defer far.Close()
	s := mux.Server(flooding{near, bytes.Repeat(header(ping, ack, 0, 9), 160), &reads}, nil)
	defer s.Close()
	defer reads.Store(math.MinInt64)
	most := int64(0)
	for range 1000 {
		before := reads.Load()
		runtime.Gosched()
		most = max(most, reads.Load()-before)
	}
	if most > 4 {
		t.Errorf("%d reads of 160 frames without a pause", most)
	}
}
