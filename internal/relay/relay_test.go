package relay_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/relay"
)

// kinds are the connections that a relay meets. All have half-close, and but
// for unix sockets a reset.
var kinds = []struct {
	name string
	make maker
}{
	{"tcp", tcp},
	{"unix", unix},
	{"tls", overTLS},
	{"stream", stream},
}

// eachPair runs test for each two kinds; reset is off for those without.
func eachPair(t *testing.T, reset bool, test func(t *testing.T, farA, nearA, farB, nearB net.Conn)) {
	for _, a := range kinds {
		for _, b := range kinds {
			if reset && (a.name == "unix" || b.name == "unix") {
				continue
			}
			t.Run(a.name+" "+b.name, func(t *testing.T) {
				farA, nearA := a.make(t)
				farB, nearB := b.make(t)
				test(t, farA, nearA, farB, nearB)
			})
		}
	}
}

// expectClosed fails if the relay left a connection open.
func expectClosed(t *testing.T, conns ...net.Conn) {
	t.Helper()
	for _, conn := range conns {
		if err := conn.SetDeadline(time.Time{}); err == nil {
			t.Errorf("%T was left open", conn)
		}
	}
}

func expectReset(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := io.Copy(io.Discard, conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %d bytes, %v; want a reset", n, err)
	}
}

func TestHalfClose(t *testing.T) {
	eachPair(t, false, func(t *testing.T, farA, nearA, farB, nearB net.Conn) {
		done := start(t.Context(), nearA, nearB)
		send(t, farA, "question")
		expect(t, farB, "question")
		send(t, farB, "begin")
		expect(t, farA, "begin")
		closeWrite(t, farA)
		expectEnd(t, farB)
		send(t, farB, "answer")
		expect(t, farA, "answer")
		closeWrite(t, farB)
		expectEnd(t, farA)
		if got, want := result(t, done), (relay.Result{AToB: 8, BToA: 11}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		expectClosed(t, nearA, nearB)
	})
}

func TestHalfCloseOfB(t *testing.T) {
	eachPair(t, false, func(t *testing.T, farA, nearA, farB, nearB net.Conn) {
		done := start(t.Context(), nearA, nearB)
		send(t, farA, "hello")
		expect(t, farB, "hello")
		send(t, farB, "banner")
		expect(t, farA, "banner")
		closeWrite(t, farB)
		expectEnd(t, farA)
		send(t, farA, "late")
		expect(t, farB, "late")
		farA.Close()
		expectEnd(t, farB)
		if got, want := result(t, done), (relay.Result{AToB: 9, BToA: 6}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestReset(t *testing.T) {
	eachPair(t, true, func(t *testing.T, farA, nearA, farB, nearB net.Conn) {
		done := start(t.Context(), nearA, nearB)
		send(t, farA, "question")
		expect(t, farB, "question")
		send(t, farB, "answ")
		expect(t, farA, "answ")
		breakOff(farB)
		expectReset(t, farA)
		res := result(t, done)
		if !errors.Is(res.Err, syscall.ECONNRESET) || res.AToB != 8 || res.BToA != 4 {
			t.Errorf("got %+v, want 8 and 4 bytes and a reset", res)
		}
		if s, ok := nearA.(*fakeStream); ok && s.code != relay.ResetCode {
			t.Errorf("got code %d, want %d", s.code, relay.ResetCode)
		}
		expectClosed(t, nearA, nearB)
	})
}

// breakOff ends a far end by an RST.
func breakOff(conn net.Conn) {
	if w, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = w.NetConn()
	}
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

func TestResetAfterHalfClose(t *testing.T) {
	farA, nearA := tcp(t)
	farB, nearB := tcp(t)
	done := start(t.Context(), nearA, nearB)
	closeWrite(t, farA)
	expectEnd(t, farB)
	breakOff(farB)
	expectReset(t, farA)
	if res := result(t, done); !errors.Is(res.Err, syscall.ECONNRESET) || !strings.Contains(res.Err.Error(), "relay: b to a: ") {
		t.Errorf("got %+v, want a reset of b", res)
	}
}

// A side that has sent its end, and then is gone, ends the relay though nobody writes to it.
func TestGoneAfterHalfClose(t *testing.T) {
	defer relay.SetGoneEvery(time.Millisecond)()
	for name, pair := range map[string]func(testing.TB) (far, near net.Conn){"tcp": tcp, "tls": overTLS} {
		t.Run(name, func(t *testing.T) {
			farA, nearA := pair(t)
			farB, nearB := tcp(t)
			done := start(t.Context(), nearA, nearB)
			send(t, farA, "hello")
			expect(t, farB, "hello")
			closeWrite(t, farA)
			expectEnd(t, farB)
			for began := time.Now(); time.Since(began) < 10*time.Millisecond; { // it is looked at meanwhile
				send(t, farB, "still there")
				expect(t, farA, "still there")
			}
			breakOff(farA)
			if res := result(t, done); res.Err == nil {
				t.Errorf("got %+v, want an error", res)
			}
		})
	}
}

// TestResetBeforeTheEnd: a side that has all and resets is in order if it has sent its end.
func TestResetBeforeTheEnd(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ended bool
		want  error
	}{{"after its own", true, nil}, {"without one", false, syscall.ECONNRESET}} {
		t.Run(tt.name, func(t *testing.T) {
			farA, nearA := tcp(t)
			farB, nearB := tcp(t)
			done := start(t.Context(), nearA, nearB)
			if tt.ended {
				closeWrite(t, farA)
				expectEnd(t, farB)
			}
			send(t, farB, "answer")
			expect(t, farA, "answer")
			breakOff(farA)
			farB.(*net.TCPConn).CloseWrite() // may be reset by now
			if res := result(t, done); !errors.Is(res.Err, tt.want) || res.BToA != 6 {
				t.Errorf("got %+v, want 6 bytes and %v", res, tt.want)
			}
		})
	}
}

// TestTLSCutIsAReset: the end of TCP within a record is no end.
func TestTLSCutIsAReset(t *testing.T) {
	farA, nearA := tcp(t)
	farB, nearB := overTLS(t)
	done := start(t.Context(), nearA, nearB)
	send(t, farB, "half of it")
	expect(t, farA, "half of it")
	below := farB.(interface{ NetConn() net.Conn }).NetConn()
	send(t, below, "\x17\x03\x03\x10\x00 not 4,096 bytes")
	below.Close()
	expectReset(t, farA)
	if res := result(t, done); !errors.Is(res.Err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want an unexpected EOF", res.Err)
	}
}

// faulty is a connection whose writes fail, or whose Close waits.
type faulty struct {
	net.Conn
	err  error
	wait <-chan struct{}
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return f.Conn.Write(p)
}

func (f *faulty) Close() error {
	if f.wait != nil {
		<-f.wait
	}
	return f.Conn.Close()
}

func TestWriteError(t *testing.T) {
	for _, name := range []string{"a to b", "b to a"} {
		t.Run(name, func(t *testing.T) {
			farA, nearA := tcp(t)
			_, nearB := tcp(t)
			broken := &faulty{Conn: nearB, err: errors.New("no more")}
			a, b := nearA, net.Conn(broken)
			if name == "b to a" {
				a, b = b, a
			}
			done := start(t.Context(), a, b)
			send(t, farA, "question")
			expectReset(t, farA)
			res := result(t, done)
			if !errors.Is(res.Err, broken.err) || res.AToB+res.BToA != 0 || !strings.Contains(res.Err.Error(), name) {
				t.Errorf("got %+v, want %q and no bytes", res, broken.err)
			}
			expectClosed(t, nearA, nearB)
		})
	}
}

func TestSlowCloseDelaysNoReset(t *testing.T) {
	for _, name := range []string{"a", "b"} {
		t.Run(name, func(t *testing.T) {
			_, nearA := tcp(t)
			farB, nearB := tcp(t)
			wait := make(chan struct{})
			a, b := net.Conn(&faulty{Conn: nearA, wait: wait}), nearB
			if name == "b" {
				a, b = b, a
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := start(ctx, a, b)
			cancel()
			expectReset(t, farB)
			close(wait)
			result(t, done)
		})
	}
}

// slowReset is a stream whose Reset waits.
type slowReset struct {
	net.Conn
	wait <-chan struct{}
}

func (s slowReset) Reset(uint32) error { <-s.wait; return nil }

// TestWaitsForItsResets: whatever else ends the directions meanwhile.
func TestWaitsForItsResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		farA, nearA := net.Pipe()
		farB, nearB := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		wait := make(chan struct{})
		done := start(ctx, slowReset{nearA, wait}, nearB)
		cancel()
		synctest.Wait()
		farA.Close()
		farB.Close()
		synctest.Wait()
		select {
		case <-done:
			t.Error("Relay returned before its goroutine")
		default:
		}
		close(wait)
		synctest.Wait()
	})
}

// TestContext ends a relay that is blocked in writes.
func TestContext(t *testing.T) {
	eachPair(t, true, func(t *testing.T, farA, nearA, farB, nearB net.Conn) {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := start(ctx, nearA, nearB)
		send(t, farA, "question")
		expect(t, farB, "question")
		written := make(chan error, 1)
		go func() {
			for {
				if _, err := farA.Write(make([]byte, 1<<16)); err != nil {
					written <- err
					return
				}
			}
		}()
		cause := errors.New("drained")
		cancel(cause)
		expectReset(t, farB)
		if err := <-written; errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want a reset", err)
		}
		if res := result(t, done); !errors.Is(res.Err, context.Canceled) || !errors.Is(res.Err, cause) {
			t.Errorf("got %v, want canceled because drained", res.Err)
		}
		expectClosed(t, nearA, nearB)
	})
}

func TestContextHasEnded(t *testing.T) {
	farA, nearA := tcp(t)
	farB, nearB := tcp(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res := relay.Relay(ctx, nearA, nearB)
	if !errors.Is(res.Err, context.Canceled) || res.Err.Error() != "relay: context canceled" {
		t.Errorf("got %v, want canceled", res.Err)
	}
	expectReset(t, farA)
	expectReset(t, farB)
}

// TestConcurrentClose: whoever else closes one side breaks the relay off.
func TestConcurrentClose(t *testing.T) {
	eachPair(t, true, func(t *testing.T, farA, nearA, farB, nearB net.Conn) {
		done := start(t.Context(), nearA, nearB)
		send(t, farA, "question")
		expect(t, farB, "question")
		nearA.Close()
		expectReset(t, farB)
		if res := result(t, done); !errors.Is(res.Err, net.ErrClosed) {
			t.Errorf("got %v, want closed", res.Err)
		}
	})
}

// TestNoHalfClose: over net.Pipe, which has none.
func TestNoHalfClose(t *testing.T) {
	t.Run("answer is lost", func(t *testing.T) {
		farA, nearA := tcp(t)
		farB, nearB := net.Pipe()
		done := start(t.Context(), nearA, nearB)
		send(t, farA, "question")
		expect(t, farB, "question")
		closeWrite(t, farA)
		expectEnd(t, farB)
		expectReset(t, farA)
		if res := result(t, done); !errors.Is(res.Err, errors.ErrUnsupported) || res.AToB != 8 {
			t.Errorf("got %+v, want 8 bytes and unsupported", res)
		}
	})
	t.Run("answer is whole", func(t *testing.T) {
		farA, nearA := tcp(t)
		farB, nearB := net.Pipe()
		done := start(t.Context(), nearA, nearB)
		send(t, farB, "answer")
		farB.Close()
		expect(t, farA, "answer")
		expectEnd(t, farA)
		farA.Close()
		if got, want := result(t, done), (relay.Result{BToA: 6}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestHeldForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		farA, nearA := net.Pipe()
		farB, nearB := net.Pipe()
		done := start(t.Context(), nearA, nearB)
		time.Sleep(24 * time.Hour)
		go io.WriteString(farA, "still there")
		expect(t, farB, "still there")
		farA.Close()
		expectEnd(t, farB)
		farB.Close()
		<-done
	})
}

// TestEarly: what was read before the relay comes first, while the other
// direction flows, and counts.
func TestEarly(t *testing.T) {
	eachPair(t, false, func(t *testing.T, farA, nearA, farB, nearB net.Conn) {
		done := make(chan relay.Result, 1)
		go func() { done <- relay.RelayEarly(t.Context(), []byte("early "), nil, nearA, nearB) }()
		expect(t, farB, "early ")
		send(t, farA, "and late")
		closeWrite(t, farA)
		expect(t, farB, "and late")
		expectEnd(t, farB)
		send(t, farB, "answer")
		closeWrite(t, farB)
		expect(t, farA, "answer")
		if got, want := result(t, done), (relay.Result{AToB: 14, BToA: 6}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// TestEarlyBlocked: b takes nothing until a has taken what b says.
func TestEarlyBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		farA, nearA := net.Pipe()
		farB, nearB := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan relay.Result, 1)
		go func() { done <- relay.RelayEarly(ctx, []byte("early"), nil, nearA, nearB) }()
		go io.WriteString(farB, "banner")
		expect(t, farA, "banner")
		synctest.Wait() // nobody reads what came early
		cancel()
		if res := <-done; !errors.Is(res.Err, context.Canceled) || res.AToB != 0 || res.BToA != 6 {
			t.Errorf("got %+v, want the context's error and 6 bytes to a", res)
		}
		farA.Close()
		farB.Close()
	})
}

func TestEarlyToBroken(t *testing.T) {
	farA, nearA := tcp(t)
	_, nearB := tcp(t)
	nearB.Close()
	res := relay.RelayEarly(t.Context(), []byte("early"), nil, nearA, nearB)
	if !errors.Is(res.Err, net.ErrClosed) || res.AToB != 0 {
		t.Errorf("got %+v, want a write to a closed connection", res)
	}
	expectReset(t, farA)
	expectClosed(t, nearA, nearB)
}
