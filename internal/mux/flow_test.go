package mux_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

func TestManyOpensAtOnce(t *testing.T) {
	const limit = 50
	client, server := sessions(t, tcpPair, &mux.Config{MaxStreams: limit})
	const n = 10000
	results := make(chan error, n)
	for range n {
		go func() {
			st, err := client.Open(t.Context(), []byte("x"))
			if err == nil {
				_, err = st.Read(make([]byte, 1))
			}
			results <- err
		}()
	}
	refused := 0
	for refused < n-limit {
		wantReset(t, <-results, mux.CodeTooMany)
		refused++
	}
	for range limit {
		st := accept(t, server)
		read(t, st, "x")
		if _, err := st.Write([]byte("y")); err != nil {
			t.Fatal(err)
		}
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
}

// A peer that goes away takes no new streams. Those that are open go on, and it
// may open others.
func TestPeerGoesAway(t *testing.T) {
	s, p := rawPeer(t, nil)
	p.send(dataFrame(syn, 1, "x"), header(goAway, 0, 0, 0), dataFrame(0, 1, "y"))
	st := accept(t, s)
	read(t, st, "xy")
	if _, err := s.Open(t.Context(), nil); !errors.Is(err, mux.ErrGoAway) {
		t.Errorf("got error %v, want ErrGoAway", err)
	}
	st.Write([]byte("open streams go on"))
	p.expect(frame{kind: data, flags: ack, id: 1, length: 18, payload: "open streams go on"})
	p.send(dataFrame(syn, 3, "z"))
	read(t, accept(t, s), "z")
}

func TestIDsRunOut(t *testing.T) {
	for _, client := range []bool{true, false} {
		a, b := sessions(t, pipePair, nil)
		if !client {
			a, b = b, a
		}
		last := uint32(1<<32 - 1)
		if !client {
			last--
		}
		a.SetNextID(last)
		opened, accepted := connect(t, a, b, "last")
		read(t, accepted, "last")
		if _, err := a.Open(t.Context(), nil); !errors.Is(err, mux.ErrExhausted) {
			t.Errorf("got error %v, want ErrExhausted", err)
		}
		opened.Close()
	}
}

func TestOpenTooLong(t *testing.T) {
	client, server := sessions(t, pipePair, nil)
	if _, err := client.Open(t.Context(), make([]byte, mux.MaxFirst+1)); !errors.Is(err, mux.ErrTooLong) {
		t.Errorf("got error %v, want ErrTooLong", err)
	}
	want := strings.Repeat("x", mux.MaxFirst)
	_, accepted := connect(t, client, server, want)
	read(t, accepted, want)
}

// The opening and the first bytes are one frame.
func TestOpenIsOneFrame(t *testing.T) {
	s, p := rawPeer(t, nil)
	if _, err := s.Open(t.Context(), []byte("first")); err != nil {
		t.Fatal(err)
	}
	p.expect(frame{kind: data, flags: syn, id: 2, length: 5, payload: "first"})
}

// A reader that stalls holds its own stream up, and no other.
func TestStalledReaders(t *testing.T) {
	client, server := sessions(t, tcpPair, nil)
	for range 200 {
		opened, _ := connect(t, client, server, "")
		go opened.Write(make([]byte, 1<<20)) // until the session's end
	}
	opened, accepted := connect(t, client, server, "")
	go io.Copy(accepted, accepted)
	for range 100 {
		if _, err := opened.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		read(t, opened, "hello")
	}
}

// Whatever the sizes of the frames, what is not read takes about its window.
func TestReceivedMemoryIsBounded(t *testing.T) {
	for _, size := range []int{1, 100, 600, 2048, 2049, 4097, 20000, 33000} {
		s, p := rawPeer(t, nil)
		p.discard()
		p.send(header(window, syn, 1, 0))
		st := accept(t, s)
		f := dataFrame(0, 1, strings.Repeat("x", size))
		batch := bytes.Repeat(f, max(1, 60000/len(f)))
		sent := 0
		for ; sent+len(batch)/len(f)*size <= 256<<10; sent += len(batch) / len(f) * size {
			p.send(batch)
		}
		if got := st.BufferBytes(); got > 2*sent+64<<10 {
			t.Errorf("%d bytes in frames of %d take %d", sent, size, got)
		}
		if got := s.Held(); got > st.BufferBytes()+(64+16)<<10 { // a frame's that is being read, and a ping's
			t.Errorf("%d bytes in frames of %d take %d bytes", sent, size, got)
		}
	}
}

// Small writes that share a frame don't pass the peer's window either, and
// writers that leave give back the room that they waited for.
func TestWindowBoundsSmallWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, nil)
		var writers sync.WaitGroup
		for range 12 {
			st, err := s.Open(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			st.SetWriteDeadline(time.Now().Add(time.Second))
			writers.Go(func() {
				for err := error(nil); err == nil; {
					_, err = st.Write(make([]byte, 1000))
				}
			})
		}
		got := map[uint32]int{}
		go func() {
			for {
				f, err := readFrame(p)
				if err != nil {
					return
				}
				got[f.id] += len(f.payload)
			}
		}()
		writers.Wait()
		synctest.Wait()
		for id, n := range got {
			if n > 256<<10 {
				t.Errorf("stream %d sent %d bytes, more than its window", id, n)
			}
		}
		if queued := s.Queued(); queued != 0 {
			t.Errorf("%d bytes are said to be queued, and all is sent", queued)
		}
	})
}

// A peer that opens far too many and reads no answer is not read either, and then
// given up.
func TestRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, &mux.Config{MaxStreams: 1})
		opened := make(chan int)
		go func() {
			n := 0
			for id := uint32(1); id < 10*mux.MaxRefused; id += 2 {
				if _, err := p.Write(header(window, syn, id, 0)); err != nil {
					break
				}
				n++
			}
			opened <- n
		}()
		if n := <-opened; n > 2*mux.MaxRefused {
			t.Errorf("%d streams were refused that nobody heard of", n)
		}
		<-s.Done()
		if err := s.Err(); !errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("got error %v, want a timeout", err)
		}
	})
}

// A stream that the peer resets before it was accepted is gone, and its place
// is free.
func TestResetBeforeAccept(t *testing.T) {
	s, p := rawPeer(t, &mux.Config{MaxStreams: 1})
	p.discard()
	for id := uint32(1); id < 1000; id += 2 {
		p.send(dataFrame(syn, id, "x"), header(window, rst, id, 1))
	}
	p.send(dataFrame(syn, 1001, "hello"))
	read(t, accept(t, s), "hello")
}

// A few bytes that were read from a connection don't hold a big buffer.
func TestSmallReadsTakeSmallFrames(t *testing.T) {
	for name, pair := range map[string]func(testing.TB) (net.Conn, net.Conn){"tcp": tcpPair, "pipe": pipePair} {
		s, p := rawPeer(t, nil)
		p.Read(make([]byte, 1)) // of the session's ping, and nothing more
		st, err := s.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		from, source := pair(t)
		done := make(chan struct{})
		go func() {
			st.ReadFrom(source)
			close(done)
		}()
		from.Write([]byte("a few bytes"))
		from.Close()
		<-done
		source.Close()
		if got := st.FrameBytes(); got == 0 || got > 4<<10 {
			t.Errorf("%s: a few bytes hold %d", name, got)
		}
	}
}

// An interactive stream waits for what is being written, not for what bulk
// streams have queued.
func TestFairness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, nil)
		const bulk = 5
		var streams []*mux.Stream
		for id := uint32(1); len(streams) <= bulk; id += 2 {
			p.send(header(window, syn, id, 0))
			streams = append(streams, accept(t, s))
			p.expect(frame{kind: window, flags: ack, id: id})
			p.send(header(window, 0, id, 1<<20))
		}
		for _, st := range streams[:bulk] {
			go st.Write(make([]byte, 1<<20))
		}
		synctest.Wait() // all wait for the carrier
		if _, err := streams[bulk].Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		counts := map[uint32]int{}
		total := 0
		for f := p.next(); f.payload != "hello"; f = p.next() {
			counts[f.id]++
			total += int(f.length)
		}
		if total > mux.BatchSize {
			t.Errorf("it came after %d bytes of bulk, want at most %d: %v", total, mux.BatchSize, counts)
		}
		for range 16 { // which were queued before there were others
			p.next()
		}
		clear(counts)
		for range 8 * bulk { // and bulk takes turns
			counts[p.next().id]++
		}
		for id, n := range counts {
			if n > 4*bulk {
				t.Errorf("stream %d sent %d of %d frames", id, n, 8*bulk)
			}
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := rawPeer(t, nil) // which reads nothing
		for range 100 {
			st, err := s.Open(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			go st.Write(make([]byte, 1<<20))
		}
		synctest.Wait()
		if got := s.Queued(); got > mux.MaxQueued || got < mux.MaxQueued-mux.MaxPayload {
			t.Errorf("got %d bytes queued, want up to %d", got, mux.MaxQueued)
		}
		st, err := s.Open(t.Context(), []byte("small ones are taken"))
		if err != nil {
			t.Fatal(err)
		}
		st.Write([]byte(" and appended"))
	})
}

// slowWrite is a carrier that takes and gives little at a time.
type slowWrite struct {
	net.Conn
	r io.Reader
}

func (c slowWrite) Read(p []byte) (int, error) { return c.r.Read(p) }

func TestSlowCarrier(t *testing.T) {
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"a byte at a time": iotest.OneByteReader,
		"half at a time":   iotest.HalfReader,
	} {
		t.Run(name, func(t *testing.T) {
			client, server := sessions(t, func(t testing.TB) (net.Conn, net.Conn) {
				a, b := tcpPair(t)
				return slowWrite{a, wrap(a)}, slowWrite{b, wrap(b)}
			}, nil)
			opened, accepted := connect(t, client, server, "")
			want := bytes.Repeat([]byte("0123456789"), 10000)
			go func() {
				opened.Write(want)
				opened.CloseWrite()
			}()
			got, err := io.ReadAll(accepted)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %d bytes and error %v, want %d", len(got), err, len(want))
			}
		})
	}
}

// flushing is a carrier that keeps bytes back until they are flushed.
type flushing struct {
	net.Conn
	mu      sync.Mutex // guards the fields below
	kept    []byte
	flushes int
}

func (c *flushing) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, p...)
	return len(p), nil
}

func (c *flushing) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.Conn.Write(c.kept)
	c.kept = c.kept[:0]
	c.flushes++
	return err
}

func TestCarrierWithFlush(t *testing.T) {
	client, server := sessions(t, func(t testing.TB) (net.Conn, net.Conn) {
		a, b := tcpPair(t)
		return &flushing{Conn: a}, &flushing{Conn: b}
	}, nil)
	opened, accepted := connect(t, client, server, "hello")
	read(t, accepted, "hello")
	accepted.Write([]byte("back"))
	read(t, opened, "back")
}
