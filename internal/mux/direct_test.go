package mux_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
)

// socketPairs make a connection that a stream is written to, and its other end.
var socketPairs = []struct {
	name string
	pair func(testing.TB) (near, far socketConn)
}{
	{"tcp", func(t testing.TB) (near, far socketConn) {
		a, b := tcpPair(t)
		return closing(t, a.(*net.TCPConn)), closing(t, b.(*net.TCPConn))
	}},
	{"unix", func(t testing.TB) (near, far socketConn) {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		a, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return closing(t, a.(*net.UnixConn)), closing(t, b.(*net.UnixConn))
	}},
}

type socketConn interface {
	net.Conn
	syscall.Conn
	SetWriteBuffer(int) error
	CloseWrite() error
}

func closing(t testing.TB, c socketConn) socketConn {
	t.Cleanup(func() { c.Close() })
	return c
}

// pumped is the result of a WriteTo.
type pumped struct {
	n   int64
	err error
}

func pump(st *mux.Stream, w io.Writer) <-chan pumped {
	done := make(chan pumped, 1)
	go func() {
		n, err := st.WriteTo(w)
		done <- pumped{n, err}
	}()
	return done
}

// delivering starts a WriteTo that is known to wait for data.
func delivering(t testing.TB, st *mux.Stream, w io.Writer) <-chan pumped {
	done := pump(st, w)
	for !st.Offered() {
		select {
		case r := <-done:
			t.Fatalf("WriteTo returned %+v", r)
		default:
		}
	}
	return done
}

// What comes is written by the session, and without the lock that a write of
// somebody else may hold for long.
func TestDirectDelivery(t *testing.T) {
	for _, sp := range socketPairs {
		for _, size := range []int{5, 20000} {
			t.Run(sp.name, func(t *testing.T) {
				near, far := sp.pair(t)
				s, p := rawPeer(t, nil) // a frame at a time: nothing follows it
				p.discard()
				p.send(header(window, syn, 1, 0))
				done := delivering(t, accept(t, s), near)
				raw, err := near.SyscallConn()
				if err != nil {
					t.Fatal(err)
				}
				locked, release, released := make(chan struct{}), make(chan struct{}), make(chan struct{})
				go func() {
					defer close(released)
					raw.Write(func(uintptr) bool {
						close(locked)
						<-release
						return true
					})
				}()
				<-locked
				defer func() {
					close(release)
					<-released
				}()
				want := strings.Repeat("x", size)
				p.send(dataFrame(0, 1, want))
				far.SetReadDeadline(time.Now().Add(10 * time.Second))
				read(t, far, want)
				p.send(header(window, fin, 1, 0))
				if got := <-done; got != (pumped{int64(size), nil}) {
					t.Errorf("got %+v, want %d bytes", got, size)
				}
			})
		}
	}
}

// Whatever the sizes of writes and of what the target takes at a time: it gets
// all, in order, and the end after it.
func TestDirectDeliveryOrder(t *testing.T) {
	for _, sp := range socketPairs {
		t.Run(sp.name, func(t *testing.T) {
			near, far := sp.pair(t)
			near.SetWriteBuffer(8 << 10)
			client, server := sessions(t, tcpPair, nil)
			opened, accepted := connect(t, client, server, "")
			done := pump(accepted, near)
			want := noise(3 << 20)
			go func() {
				writeParts(opened, want)
				opened.CloseWrite()
			}()
			received := make(chan []byte, 1)
			go func() {
				b, _ := io.ReadAll(far)
				received <- b
			}()
			if got := <-done; got != (pumped{int64(len(want)), nil}) {
				t.Errorf("got %+v, want %d bytes", got, len(want))
			}
			near.CloseWrite()
			if got := <-received; !bytes.Equal(got, want) {
				t.Errorf("got %d bytes, want %d, and the same", len(got), len(want))
			}
			opened.Close()
			accepted.Close()
			settled(t, "server", server)
		})
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	random := rand.NewChaCha8([32]byte{1})
	random.Read(b)
	return b
}

// writeParts writes p in parts of all sizes.
func writeParts(w io.Writer, p []byte) {
	random := rand.New(rand.NewPCG(1, 2))
	for len(p) > 0 {
		n := min(len(p), 1+random.IntN(1<<random.IntN(18)))
		if _, err := w.Write(p[:n]); err != nil {
			return
		}
		p = p[n:]
	}
}

// A WriteTo that is interrupted says how much was written, and no byte is
// written after it returned.
func TestDirectDeliveryInterrupted(t *testing.T) {
	near, far := socketPairs[0].pair(t)
	client, server := sessions(t, tcpPair, nil)
	opened, accepted := connect(t, client, server, "")
	want := noise(8 << 20)
	go func() {
		writeParts(opened, want)
		opened.CloseWrite()
	}()
	received := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(far)
		received <- b
	}()
	var total int64
	for turn := 0; ; turn++ {
		done := pump(accepted, near)
		if turn < 2000 {
			accepted.SetReadDeadline(time.Unix(1, 0))
		}
		r := <-done
		total += r.n
		if r.err == nil {
			break
		}
		if !errors.Is(r.err, os.ErrDeadlineExceeded) {
			t.Fatal(r.err)
		}
		if accepted.Offered() {
			t.Fatal("the session still has what WriteTo was given")
		}
		accepted.SetReadDeadline(time.Time{})
	}
	near.CloseWrite()
	if got := <-received; !bytes.Equal(got, want) || total != int64(len(want)) {
		t.Errorf("got %d bytes (equal: %t), WriteTo counted %d, want %d", len(got), bytes.Equal(got, want), total, len(want))
	}
}

// A target that takes nothing holds up its own stream alone, even if its
// socket is one that blocks.
func TestDirectDeliveryIsolation(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		near, _ := socketPairs[0].pair(t)
		client, server := sessions(t, tcpPair, nil)
		opened, accepted := connect(t, client, server, "")
		echoing, echoed := connect(t, client, server, "")
		go io.Copy(echoed, echoed)
		fill(t, near)
		done := delivering(t, accepted, near)
		if blocking {
			setBlocking(t, near)
		}
		wrote := make(chan struct{})
		go func() {
			opened.Write(make([]byte, 16<<20))
			close(wrote)
		}()
		for accepted.Offered() { // nothing has come yet
			runtime.Gosched()
		}
		for range 100 {
			echoing.Write([]byte("hello"))
			read(t, echoing, "hello")
		}
		if got := accepted.BufferBytes(); got > 2*accepted.Window() {
			t.Errorf("%d bytes are held for a target that takes nothing", got)
		}
		opened.Reset(7)
		<-wrote
		near.SetWriteDeadline(time.Unix(1, 0))
		if !blocking {
			if r := <-done; !errors.Is(r.err, os.ErrDeadlineExceeded) {
				t.Errorf("got %+v, want the target's timeout", r)
			}
		}
	}
}

// fill writes to c until it takes nothing.
func fill(t testing.TB, c net.Conn) {
	t.Helper()
	c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	defer c.SetWriteDeadline(time.Time{})
	for {
		if _, err := c.Write(make([]byte, 1<<20)); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			return
		}
	}
}

// The target's error is WriteTo's alone, and what it didn't take can be read.
func TestDirectDeliveryError(t *testing.T) {
	near, far := socketPairs[0].pair(t)
	client, server := sessions(t, tcpPair, nil)
	opened, accepted := connect(t, client, server, "")
	done := delivering(t, accepted, near)
	far.(*net.TCPConn).SetLinger(0)
	far.Close()
	opened.Write([]byte("hello"))
	r := <-done
	var op *net.OpError
	if r.n != 0 || !errors.As(r.err, &op) || op.Op != "write" || op.Net != "tcp" || !errors.Is(r.err, syscall.ECONNRESET) {
		t.Errorf("got %+v, want an error of the write", r)
	}
	read(t, accepted, "hello")
	echoing, echoed := connect(t, client, server, "")
	go io.Copy(echoed, echoed)
	echoing.Write([]byte("hello"))
	read(t, echoing, "hello")
}

// What is closed or reset while a WriteTo waits ends it with the same errors
// as that of any Writer.
func TestDirectDeliveryEnds(t *testing.T) {
	tests := []struct {
		name string
		end  func(near net.Conn, opened, accepted *mux.Stream, server *mux.Session)
		want error
	}{
		{"target closed", func(near net.Conn, opened, _ *mux.Stream, _ *mux.Session) {
			near.Close()
			opened.Write([]byte("more"))
		}, net.ErrClosed},
		{"stream closed", func(_ net.Conn, _, accepted *mux.Stream, _ *mux.Session) { accepted.Close() }, net.ErrClosed},
		{"reset by the peer", func(_ net.Conn, opened, _ *mux.Stream, _ *mux.Session) { opened.Reset(9) }, syscall.ECONNRESET},
		{"session closed", func(_ net.Conn, _, _ *mux.Stream, server *mux.Session) { server.Close() }, mux.ErrSessionClosed},
		{"end", func(_ net.Conn, opened, _ *mux.Stream, _ *mux.Session) { opened.CloseWrite() }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			near, far := socketPairs[0].pair(t)
			client, server := sessions(t, tcpPair, nil)
			opened, accepted := connect(t, client, server, "")
			done := delivering(t, accepted, near)
			opened.Write([]byte("hello"))
			read(t, far, "hello")
			tt.end(near, opened, accepted, server)
			if r := <-done; r.n != 5 || !errors.Is(r.err, tt.want) {
				t.Errorf("got %+v, want 5 bytes and %v", r, tt.want)
			}
		})
	}
}
