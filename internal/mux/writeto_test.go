package mux_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
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

// pumped is the result of a WriteTo or DeliverTo.
type pumped struct {
	n   int64
	err error
}

type way func(*mux.Stream, net.Conn) (int64, error)

// eachWay runs a test of each way in which a stream is written to a connection.
func eachWay(t *testing.T, test func(*testing.T, way)) {
	t.Run("WriteTo", func(t *testing.T) {
		test(t, func(st *mux.Stream, c net.Conn) (int64, error) { return st.WriteTo(c) })
	})
	t.Run("DeliverTo", func(t *testing.T) { test(t, (*mux.Stream).DeliverTo) })
}

func pump(way way, st *mux.Stream, c net.Conn) <-chan pumped {
	done := make(chan pumped, 1)
	go func() {
		n, err := way(st, c)
		done <- pumped{n, err}
	}()
	return done
}

// delivering starts a DeliverTo that is known to wait for data.
func delivering(t testing.TB, st *mux.Stream, c net.Conn) <-chan pumped {
	done := pump((*mux.Stream).DeliverTo, st, c)
	for !st.Offered() {
		select {
		case r := <-done:
			t.Fatalf("DeliverTo returned %+v", r)
		default:
		}
	}
	return done
}

// Whatever the sizes of writes and of what the target takes at a time: it gets
// all, in order, and the end after it.
func TestWriteToOrder(t *testing.T) { eachWay(t, testWriteToOrder) }

func testWriteToOrder(t *testing.T, way way) {
	for _, sp := range socketPairs {
		t.Run(sp.name, func(t *testing.T) {
			near, far := sp.pair(t)
			near.SetWriteBuffer(8 << 10)
			client, server := sessions(t, tcpPair, nil)
			opened, accepted := connect(t, client, server, "")
			done := pump(way, accepted, near)
			want := noise(3 << 20)
			received := transfer(opened, want, far)
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

// transfer writes p and its end to a stream, and returns what comes out of far.
func transfer(to *mux.Stream, p []byte, far io.Reader) <-chan []byte {
	go func() {
		writeParts(to, p)
		to.CloseWrite()
	}()
	received := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(far)
		received <- b
	}()
	return received
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
func TestWriteToInterrupted(t *testing.T) { eachWay(t, testWriteToInterrupted) }

func testWriteToInterrupted(t *testing.T, way way) {
	near, far := socketPairs[0].pair(t)
	client, server := sessions(t, tcpPair, nil)
	opened, accepted := connect(t, client, server, "")
	want := noise(8 << 20)
	received := transfer(opened, want, far)
	var total int64
	for turn := 0; ; turn++ {
		done := pump(way, accepted, near)
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
			t.Fatal("the session still has what it was given")
		}
		accepted.SetReadDeadline(time.Time{})
	}
	near.CloseWrite()
	if got := <-received; !bytes.Equal(got, want) || total != int64(len(want)) {
		t.Errorf("got %d bytes (equal: %t), WriteTo counted %d, want %d", len(got), bytes.Equal(got, want), total, len(want))
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
func TestWriteToError(t *testing.T) { eachWay(t, testWriteToError) }

func testWriteToError(t *testing.T, way way) {
	near, far := socketPairs[0].pair(t)
	client, server := sessions(t, tcpPair, nil)
	opened, accepted := connect(t, client, server, "")
	done := pump(way, accepted, near)
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
func TestWriteToEnds(t *testing.T) { eachWay(t, testWriteToEnds) }

func testWriteToEnds(t *testing.T, way way) {
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
			done := pump(way, accepted, near)
			opened.Write([]byte("hello"))
			read(t, far, "hello")
			tt.end(near, opened, accepted, server)
			if r := <-done; r.n != 5 || !errors.Is(r.err, tt.want) {
				t.Errorf("got %+v, want 5 bytes and %v", r, tt.want)
			}
		})
	}
}

// Somebody else may write to the target of an io.Copy, as to any net.Conn, and
// nothing comes into the middle of what one Write was given. With DeliverTo it
// should not, but no byte is to be misplaced by it.
func TestWriteToBesideWrites(t *testing.T) { eachWay(t, testWriteToBesideWrites) }

func testWriteToBesideWrites(t *testing.T, way way) {
	const rounds, size, message = 120, 4 << 20, "stream"
	near, far := tcpPair(t)
	defer far.Close()
	client, server := sessions(t, tcpPair, nil)
	opened, accepted := connect(t, client, server, "")
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		way(accepted, near)
	}()
	block, got := bytes.Repeat([]byte("b"), size), make([]byte, size+len(message))
	blocks := make(chan []byte)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for b := range blocks {
			near.Write(b)
		}
	}()
	mixed := 0
	for range rounds {
		blocks <- block
		readInto(t, far, got[:size/2]) // the Write has begun, and is far from its end
		if _, err := io.WriteString(opened, message); err != nil {
			t.Fatal(err)
		}
		readInto(t, far, got[size/2:])
		if !bytes.Equal(got[:size], block) {
			mixed++
		}
	}
	if mixed > 0 {
		t.Errorf("%d of %d writes have bytes of the stream in their middle", mixed, rounds)
	}
	close(blocks)
	<-written
	opened.Close()
	<-copied
	near.Close()
}

func readInto(t *testing.T, r io.Reader, p []byte) {
	t.Helper()
	if _, err := io.ReadFull(r, p); err != nil {
		t.Fatal(err)
	}
}
