package mux_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/causewayproject/causeway/internal/budget"
	"github.com/causewayproject/causeway/internal/linktest"
	"github.com/causewayproject/causeway/internal/mux"
)

// spare is the flag of a frame that gives back a part of a window.
const spare uint16 = 1 << 4

// flow opens a stream whose peer sends without end, until stop is called.
func flow(t *testing.T, from, to *mux.Session) (reader *mux.Stream, stop func()) {
	t.Helper()
	opened, accepted := connect(t, from, to, "")
	return accepted, sendZeros(opened)
}

// sendZeros writes to st until stop is called.
func sendZeros(st *mux.Stream) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(st, zeros{})
	}()
	return func() {
		st.SetWriteDeadline(time.Now())
		<-done
		st.SetWriteDeadline(time.Time{})
	}
}

// readSlowly reads some bytes every 10 ms.
func readSlowly(st *mux.Stream, size int) {
	buf := make([]byte, size)
	for {
		if _, err := io.ReadFull(st, buf); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A window grows as far as the reader takes what comes, and no further.
func TestWindowGrows(t *testing.T) {
	const roundTrip = 100 * time.Millisecond
	tests := []struct {
		name     string
		read     func(*mux.Stream)
		min, max int // what the window has become
	}{
		{"all that comes", func(st *mux.Stream) { io.Copy(io.Discard, st) }, 2 * gbit / 10, mux.MaxWindow},
		{"10 MB/s", func(st *mux.Stream) { readSlowly(st, 100_000) }, 1 << 20, 4 << 20},
		{"1 MB/s", func(st *mux.Stream) { readSlowly(st, 10_000) }, mux.Initial, 4 * mux.Initial},
		{"0.3 MB/s", func(st *mux.Stream) { readSlowly(st, 3_000) }, mux.Initial, mux.Initial},
		{"nothing", func(st *mux.Stream) {}, mux.Initial, mux.Initial},
		{"a megabyte, and then nothing", func(st *mux.Stream) { io.CopyN(io.Discard, st, 1_000_000) }, mux.Initial, 4 << 20},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := sessions(t, longLine(roundTrip, gbit), nil)
				st, stop := flow(t, client, server)
				var reading sync.WaitGroup
				reading.Go(func() { test.read(st) })
				time.Sleep(3 * time.Second)
				window := st.Window()
				if window < test.min || window > test.max {
					t.Errorf("got a window of %d, want %d to %d", window, test.min, test.max)
				}
				// What is received and not read takes at most twice its size.
				if held := st.BufferBytes(); held > 2*window {
					t.Errorf("%d bytes are held for a window of %d", held, window)
				}
				stop()
				st.Close()
				reading.Wait()
			})
		})
	}
}

// No window grows while half of the Budget is used, nor to more than half of it.
func TestWindowsLeaveTheBudget(t *testing.T) {
	for _, tt := range []struct{ size, used, least, most int }{
		{mux.MaxGrown, mux.MaxGrown/2 + 1, mux.Initial, mux.Initial},
		{mux.MaxGrown, 0, mux.MaxWindow / 2, mux.MaxWindow},
		{16 << 20, 0, 6 << 20, mux.Initial + 8<<20},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &budget.Budget{Bytes: int64(tt.size)}
			budget.Add(b, tt.used)
			client, server := sessions(t, longLine(100*time.Millisecond, gbit), &mux.Config{Budget: b})
			st, stop := flow(t, client, server)
			go io.Copy(io.Discard, st)
			time.Sleep(3 * time.Second)
			if got := st.Window(); got < tt.least || got > tt.most {
				t.Errorf("%d bytes of %d used: got a window of %d, want %d to %d", tt.used, tt.size, got, tt.least, tt.most)
			}
			stop()
		})
	}
}

// Streams that flow have about the same part of what windows may grow by.
func TestWindowsShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A line that all of them together can't fill.
		client, server := sessions(t, longLine(time.Second, 10*gbit), nil)
		const streams = 4
		var readers []*mux.Stream
		for range streams {
			st, stop := flow(t, client, server)
			defer stop()
			go io.Copy(io.Discard, st)
			readers = append(readers, st)
			for range 200 {
				time.Sleep(10 * time.Millisecond)
				if got := server.Grown(); got > mux.MaxGrown {
					t.Fatalf("the windows grew by %d, want %d at most", got, mux.MaxGrown)
				}
			}
		}
		time.Sleep(6 * time.Second)
		const fair = mux.MaxGrown / (streams + 1)
		for i, st := range readers {
			if grown := st.Window() - mux.Initial; grown < fair*3/4 || grown > fair*5/4 {
				t.Errorf("window %d grew by %d, want about %d", i, grown, fair)
			}
		}
	})
}

// A reader that stalls with a large window leaves half of what there is to the
// others, and all of it when it goes on.
func TestStalledReaderLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := sessions(t, longLine(time.Second, 10*gbit), nil)
		stalled, stop := flow(t, client, server)
		defer stop()
		io.CopyN(io.Discard, stalled, 128<<20)
		if got := stalled.Window(); got < mux.MaxWindow*9/10 {
			t.Fatalf("got a window of %d, want almost %d", got, mux.MaxWindow)
		}
		time.Sleep(5 * time.Second)
		st, stop := flow(t, client, server)
		defer stop()
		go io.Copy(io.Discard, st)
		time.Sleep(8 * time.Second)
		if got, want := st.Window()-mux.Initial, mux.MaxGrown/4; got < want*9/10 {
			t.Errorf("the window beside it grew by %d, want %d", got, want)
		}
		if got := stalled.BufferBytes(); got > 2*mux.MaxWindow {
			t.Errorf("the stalled reader holds %d bytes", got)
		}
		stalled.Close()
		time.Sleep(8 * time.Second)
		if got, want := st.Window()-mux.Initial, mux.MaxGrown/2; got < want*9/10 {
			t.Errorf("the window grew by %d after the other one was closed, want %d", got, want)
		}
	})
}

// Streams that are idle hold nothing that others want.
func TestIdleWindowsAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := sessions(t, longLine(200*time.Millisecond, gbit), nil)
		const streams = 8
		var idle, senders []*mux.Stream
		for range streams {
			opened, st := connect(t, client, server, "")
			stop := sendZeros(opened)
			go io.Copy(io.Discard, st)
			time.Sleep(2 * time.Second)
			if got := st.Window() - mux.Initial; got < mux.MaxGrown/4 {
				t.Errorf("window %d grew by %d, want %d at least", len(idle), got, mux.MaxGrown/4)
			}
			stop()
			idle, senders = append(idle, st), append(senders, opened)
		}
		time.Sleep(mux.IdleAfter)
		st, stop := flow(t, client, server)
		go io.Copy(io.Discard, st)
		time.Sleep(2 * time.Second)
		if got, want := server.Grown(), st.Window()-mux.Initial; got != want {
			t.Errorf("the windows grew by %d, want the %d of the one that is used", got, want)
		}
		stop()
		for i, st := range idle {
			if got := st.Window(); got != mux.Initial {
				t.Errorf("idle window %d has %d bytes", i, got)
			}
		}
		// They go on as before.
		stop = sendZeros(senders[0])
		time.Sleep(2 * time.Second)
		if got := idle[0].Window() - mux.Initial; got < mux.MaxGrown/4 {
			t.Errorf("a window that was given back grew by %d, want %d at least", got, mux.MaxGrown/4)
		}
		stop()
	})
}

// What can't be used any more goes back at once.
func TestWindowsOfWhatEnded(t *testing.T) {
	tests := []struct {
		name string
		end  func(opened, accepted *mux.Stream)
	}{
		{"the peer has sent all", func(opened, _ *mux.Stream) { opened.CloseWrite() }},
		{"the peer closes", func(opened, _ *mux.Stream) { opened.Close() }},
		{"the peer resets", func(opened, _ *mux.Stream) { opened.Reset(mux.CodeUser) }},
		{"closed", func(_, accepted *mux.Stream) { accepted.Close() }},
		{"reset", func(_, accepted *mux.Stream) { accepted.Reset(mux.CodeUser) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := sessions(t, longLine(100*time.Millisecond, gbit), nil)
				opened, accepted := connect(t, client, server, "")
				stop := sendZeros(opened)
				io.CopyN(io.Discard, accepted, gbit)
				time.Sleep(time.Second) // the window is full
				stop()
				if server.Grown() == 0 {
					t.Fatal("the window has not grown")
				}
				test.end(opened, accepted)
				time.Sleep(time.Second)
				// But what waits to be read is there, even if the stream is not.
				if got, want := server.Grown() > 0, accepted.BufferBytes() > 0; got != want {
					t.Errorf("the windows grew by %d, and %d bytes are held", server.Grown(), accepted.BufferBytes())
				}
				io.Copy(io.Discard, accepted)
				if got := server.Grown(); got != 0 {
					t.Errorf("the windows grew by %d, want 0 as all was read", got)
				}
			})
		})
	}
}

// A line may become a longer one.
func TestLineBecomesLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := linktest.New(lineConfig(time.Millisecond, gbit))
		defer link.Close()
		client, server := sessions(t, func(testing.TB) (net.Conn, net.Conn) { return linkedPair(link) }, nil)
		st, stop := flow(t, client, server)
		began := time.Now()
		link.Set(lineConfig(100*time.Millisecond, gbit))
		got := &counter{from: began.Add(6 * time.Second), to: began.Add(7 * time.Second)}
		st.SetReadDeadline(got.to)
		io.Copy(got, st)
		stop()
		if got.n < gbit*9/10 {
			t.Errorf("got %d bytes in a second, want 90%% of %d", got.n, gbit)
		}
	})
}

// A peer that gives back more than it has breaks the protocol; whatever it asks
// for or gives back, what it may send is what both think.
func TestSpareFrames(t *testing.T) {
	s, p := rawPeer(t, nil)
	p.send(header(window, syn, 1, 0))
	st := accept(t, s)
	p.expect(frame{kind: window, flags: ack, id: 1})
	p.send(header(window, 0, 1, 1000), header(window, spare, 1, 0))
	p.expect(frame{kind: window, flags: spare, id: 1, length: 1000})
	p.send(header(window, spare, 1, 0)) // there is no more: no answer
	p.send(header(window, spare, 1, 200<<10))
	p.send(dataFrame(0, 1, strings.Repeat("x", 8<<10)))
	read(t, st, strings.Repeat("x", 8<<10))
	p.expect(frame{kind: window, id: 1, length: 208 << 10})
	p.send(header(window, spare, 1, 256<<10+1))
	<-s.Done()
	var protocol *mux.ProtocolError
	if err := s.Err(); !errors.As(err, &protocol) {
		t.Errorf("got error %v, want a ProtocolError", err)
	}
}

// hashicorp/yamux takes no notice of being asked for what it doesn't use.
func TestSpareFramesOfYamux(t *testing.T) {
	a, b := net.Pipe()
	theirs, err := yamux.Server(b, yamuxConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	p := peer{a, t}
	go p.send(header(window, syn, 1, 0), header(window, spare, 1, 0), dataFrame(0, 1, "hello"))
	st := make(chan net.Conn, 1)
	go func() {
		accepted, err := theirs.Accept()
		if err != nil {
			t.Error(err)
		}
		st <- accepted
	}()
	p.expect(frame{kind: window, flags: ack, id: 1})
	accepted := <-st
	read(t, accepted, "hello")
	go accepted.Write(bytes.Repeat([]byte("x"), 256<<10+1))
	for got := 0; got < 256<<10; {
		got += len(p.next().payload)
	}
	// The window that it has is the one that it had.
	go p.send(header(window, 0, 1, 1))
	if f := p.next(); f.payload != "x" {
		t.Errorf("got frame %+v, want a byte", f)
	}
	a.Close()
}
