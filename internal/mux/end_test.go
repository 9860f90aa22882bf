package mux_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

func wantLost(t testing.TB, err error) {
	t.Helper()
	var lost *mux.LostError
	if !errors.As(err, &lost) || !errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
		t.Errorf("got error %v, want a LostError that is ECONNRESET and not EOF", err)
	}
}

func wantReset(t testing.TB, err error, code uint32) {
	t.Helper()
	var reset *mux.ResetError
	if !errors.As(err, &reset) || *reset != (mux.ResetError{Code: code, Remote: true}) || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got error %v, want a reset by the peer with code %d", err, code)
	}
	if errors.Is(err, net.ErrClosed) {
		t.Errorf("%v is net.ErrClosed, though the peer reset it", err)
	}
}

// Whatever a carrier delivered before it died: a response is complete only if
// its end was part of it.
func TestCutResponseIsNeverWhole(t *testing.T) {
	response := strings.Repeat("0123456789", 95)
	whole := append(dataFrame(syn, 1, response), header(window, fin, 1, 0)...)
	whole = append(whole, header(window, 0, 1, 100)...)
	lasts := len(whole) - 12 // from here on it is complete
	for cut := 12; cut <= len(whole); cut++ {
		s, p := rawPeer(t, nil)
		p.discard()
		accepted := make(chan *mux.Stream, 1)
		go func() {
			st, _ := s.Accept(t.Context())
			accepted <- st
		}()
		p.send(whole[:cut])
		if cut < 12+len(response) {
			p.Close() // the opening is not complete
			if st := <-accepted; st != nil {
				t.Fatalf("cut at %d: got a stream", cut)
			}
			continue
		}
		st := <-accepted
		if cut < lasts {
			// What is there can be read when the carrier is gone.
			there := make(chan struct{})
			st.AfterReadable(func() { close(there) })
			<-there
			p.Close()
		}
		got, err := io.ReadAll(st)
		p.Close()
		if string(got) != response {
			t.Fatalf("cut at %d: got %d bytes, want %d", cut, len(got), len(response))
		}
		if cut >= lasts {
			if err != nil {
				t.Fatalf("cut at %d, after the end: got error %v", cut, err)
			}
		} else {
			wantLost(t, err)
		}
	}
}

// The other half of that: cuts within the frames of a stream that is open.
func TestCarrierDiesInFrame(t *testing.T) {
	payload := strings.Repeat("x", 5000)
	whole := dataFrame(0, 1, payload)
	for cut := 0; cut <= len(whole); cut += 5 {
		s, p := rawPeer(t, nil)
		p.discard()
		p.send(header(window, syn, 1, 0))
		st := accept(t, s)
		p.send(whole[:cut])
		p.Close()
		got, err := io.ReadAll(st)
		wantLost(t, err)
		want := 0
		if cut == len(whole) {
			want = len(payload)
		}
		if len(got) != want {
			t.Fatalf("cut at %d: got %d bytes, want %d", cut, len(got), want)
		}
		_, err = st.Write([]byte("x"))
		wantLost(t, err)
	}
}

func TestSessionCloseIsNoEOF(t *testing.T) {
	client, server := sessions(t, pipePair, nil)
	opened, accepted := connect(t, client, server, "x")
	client.Close()
	_, err := io.ReadAll(accepted)
	wantLost(t, err)
	if _, err := opened.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got error %v on the side that closed, want net.ErrClosed", err)
	}
	if err := client.Err(); !errors.Is(err, mux.ErrSessionClosed) {
		t.Errorf("got session error %v, want ErrSessionClosed", err)
	}
	if _, err := client.Open(t.Context(), nil); !errors.Is(err, mux.ErrSessionClosed) {
		t.Errorf("got error %v from Open, want ErrSessionClosed", err)
	}
}

// slowCloser is a carrier that takes its time to say goodbye.
type slowCloser struct {
	net.Conn
	closed atomic.Bool
}

func (c *slowCloser) Close() error {
	c.Conn.Close()
	time.Sleep(time.Second)
	c.closed.Store(true)
	return nil
}

// Whoever closes a session has its carrier closed then, also when another is
// just about it; and nobody waits for that in a lock, which would stop the clock
// of a test like this one.
func TestClosersWaitForCarrier(t *testing.T) {
	for _, begins := range []string{"Close", "the peer"} {
		t.Run(begins, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				carrier := &slowCloser{Conn: near}
				s := mux.Client(carrier, nil)
				var wg sync.WaitGroup
				if begins == "the peer" {
					far.Close()
					synctest.Wait()
				}
				for range 3 {
					wg.Go(func() {
						s.Close()
						if !carrier.closed.Load() {
							t.Error("Close returned before the carrier was closed")
						}
					})
				}
				wg.Wait()
				far.Close()
			})
		})
	}
}

func TestHalfCloseIsHeld(t *testing.T) {
	for _, client := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, b := sessions(t, pipePair, nil)
			half, other := connect(t, a, b, "")
			if !client {
				half, other = other, half
			}
			if err := half.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if n, err := other.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Fatalf("got %d bytes and error %v, want io.EOF", n, err)
			}
			time.Sleep(time.Hour)
			if _, err := other.Write([]byte("late")); err != nil {
				t.Fatal(err)
			}
			read(t, half, "late")
			if _, err := half.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
				t.Errorf("got error %v from a write after CloseWrite, want EPIPE", err)
			}
			other.CloseWrite()
			if _, err := half.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("got error %v, want io.EOF", err)
			}
			synctest.Wait()
			for _, s := range []*mux.Session{a, b} {
				if n := s.Stats().Streams; n != 0 {
					t.Errorf("got %d streams after both ends, want 0", n)
				}
			}
		})
	}
}

func TestResetAfterData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, nil)
		p.discard()
		p.send(header(window, syn, 1, 0))
		st := accept(t, s)
		p.send(dataFrame(0, 1, "before"), header(window, rst, 1, 77))
		got, err := io.ReadAll(st)
		if string(got) != "before" {
			t.Errorf("got %q, want what came before the reset", got)
		}
		wantReset(t, err, 77)
		_, err = st.Write([]byte("x"))
		wantReset(t, err, 77)
		st.Close()
		synctest.Wait()
		if left := s.Leftovers(); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

func TestResetAfterEndKeepsEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, nil)
		p.discard()
		p.send(header(window, syn, 1, 0))
		st := accept(t, s)
		p.send(dataFrame(fin, 1, "all"), header(window, rst, 1, 77))
		synctest.Wait() // the end can be read before the reset is here
		got, err := io.ReadAll(st)
		if string(got) != "all" || err != nil {
			t.Errorf("got %q and error %v, want all", got, err)
		}
		_, err = st.Write([]byte("x"))
		wantReset(t, err, 77)
	})
}

func TestResetWakesBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := sessions(t, pipePair, nil)
		opened, accepted := connect(t, client, server, "")
		errs := make(chan error, 2)
		go func() {
			_, err := opened.Write(make([]byte, 1<<20)) // nobody reads
			errs <- err
		}()
		go func() {
			_, err := opened.Read(make([]byte, 1))
			errs <- err
		}()
		synctest.Wait()
		accepted.Reset(mux.CodeUser)
		wantReset(t, <-errs, mux.CodeUser)
		wantReset(t, <-errs, mux.CodeUser)
		if _, err := accepted.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got error %v on the side that reset, want a reset that is net.ErrClosed", err)
		}
		opened.Close()
		synctest.Wait()
		for _, s := range []*mux.Session{client, server} {
			if left := s.Leftovers(); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
		}
	})
}

func TestResetBeforeOpeningWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, nil)
		synctest.Wait() // the session's ping blocks
		st, err := s.Open(t.Context(), []byte("never"))
		if err != nil {
			t.Fatal(err)
		}
		st.Reset(1)
		if left := s.Leftovers(); left["streams"]+left["unsent"]+left["queued"] > 0 {
			t.Errorf("left over: %v", left)
		}
		if _, err := s.Open(t.Context(), []byte("second")); err != nil {
			t.Fatal(err)
		}
		p.expect(frame{kind: data, flags: syn, id: 4, length: 6, payload: "second"})
	})
}

func TestResetGoesAheadOfBulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, nil)
		var streams []*mux.Stream
		for id := uint32(1); id <= 5; id += 2 {
			p.send(header(window, syn, id, 0))
			streams = append(streams, accept(t, s))
			p.expect(frame{kind: window, flags: ack, id: id})
		}
		victim := streams[2]
		for _, bulk := range streams[:2] { // together more than a batch
			go bulk.Write(make([]byte, 250<<10))
		}
		synctest.Wait()
		victim.Write([]byte("never sent"))
		victim.Reset(5)
		if got := victim.FrameBytes(); got != 0 {
			t.Errorf("%d bytes wait to be sent after the reset", got)
		}
		before := 0
		for f := p.next(); f.flags != rst; f = p.next() {
			if f.id == 5 {
				t.Fatalf("got frame %+v, want bulk or the reset", f)
			}
			before += len(f.payload)
		}
		if before > mux.BatchSize {
			t.Errorf("the reset came after %d bytes of bulk, want what was being written, at most %d", before, mux.BatchSize)
		}
	})
}

// Close is no end of what was written, and leaves no writer behind.
func TestCloseSendsAllAndReadsNoMore(t *testing.T) {
	for _, carrier := range carriers {
		t.Run(carrier.name, func(t *testing.T) {
			client, server := sessions(t, carrier.pair, nil)
			opened, accepted := connect(t, client, server, "")
			want := bytes.Repeat([]byte("0123456789"), 20000)
			if _, err := opened.Write(want); err != nil {
				t.Fatal(err)
			}
			blocked := make(chan error, 1)
			go func() {
				_, err := accepted.Write(make([]byte, 1<<20))
				blocked <- err
			}()
			if err := opened.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(accepted)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %d bytes and error %v, want %d bytes", len(got), err, len(want))
			}
			wantReset(t, <-blocked, mux.CodeClosed)
			if err := opened.Close(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("got error %v from a second Close, want net.ErrClosed", err)
			}
			if _, err := opened.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("got error %v from a write after Close, want net.ErrClosed", err)
			}
		})
	}
}

// One end each: a second FIN is an error to peers that are not ours.
func TestCloseAfterCloseWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := rawPeer(t, nil)
		p.send(header(window, syn, 1, 0))
		st := accept(t, s)
		st.CloseWrite()
		p.expect(frame{kind: window, flags: ack | fin, id: 1})
		st.CloseWrite()
		st.Close()
		p.expect(frame{kind: window, flags: rst, id: 1, length: mux.CodeClosed})
	})
}

func TestFireAndForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := sessions(t, pipePair, &mux.Config{MaxStreams: 1})
		opened, err := client.Open(t.Context(), []byte("all"))
		if err != nil {
			t.Fatal(err)
		}
		opened.Close()
		synctest.Wait() // both directions have ended, and nobody has accepted it
		second, err := client.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = second.Read(make([]byte, 1))
		wantReset(t, err, mux.CodeTooMany)
		accepted := accept(t, server)
		got, err := io.ReadAll(accepted)
		if string(got) != "all" || err != nil {
			t.Errorf("got %q and error %v, want all", got, err)
		}
		accepted.Close()
		connect(t, client, server, "there is room again")
	})
}
