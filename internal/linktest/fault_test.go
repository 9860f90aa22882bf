package linktest_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
)

func TestPlain(t *testing.T) {
	b := newBed(t, linktest.Config{})
	client, target := b.open()
	client.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(target); err != nil || len(rest) > 0 {
		t.Fatalf("got %q, %v; want the end", rest, err)
	}
	send(t, target, "answer")
	expect(t, client, "answer")
	target.Close()
	if rest, err := io.ReadAll(client); err != nil || len(rest) > 0 {
		t.Fatalf("got %q, %v; want the end", rest, err)
	}
}

func TestReset(t *testing.T) {
	b := newBed(t, linktest.Config{})
	client, target := b.open()
	client2, target2 := b.open()
	b.link.Reset()
	for _, conn := range []net.Conn{client, target, client2, target2} {
		expectReset(t, conn)
	}
	b.open()
}

func TestResetIsPassedOn(t *testing.T) {
	b := newBed(t, linktest.Config{Down: linktest.Direction{Delay: 30 * time.Millisecond}})
	client, target := b.open()
	send(t, target, "answ")
	began := time.Now()
	expect(t, client, "answ") // an RST may overtake it at the link's socket
	target.(*net.TCPConn).SetLinger(0)
	target.Close()
	expectReset(t, client)
	if took := time.Since(began); took < 30*time.Millisecond {
		t.Errorf("took %v, want the delay", took)
	}
}

// TestResetAfterEnd is found by a write alone.
func TestResetAfterEnd(t *testing.T) {
	b := newBed(t, linktest.Config{})
	client, target := b.open()
	target.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(client); err != nil || len(rest) > 0 {
		t.Fatalf("got %q, %v; want the end", rest, err)
	}
	target.(*net.TCPConn).SetLinger(0)
	target.Close()
	for {
		if _, err := client.Write(make([]byte, 1000)); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the client is not told of the reset")
			}
			return
		}
	}
}

// noting says when it is closed.
type noting struct {
	*net.TCPConn
	closed chan struct{}
}

func (n noting) Close() error {
	n.closed <- struct{}{}
	return n.TCPConn.Close()
}

func TestClosesWhatHasEnded(t *testing.T) {
	b := newBed(t, linktest.Config{})
	closed := make(chan struct{}, 10)
	var far, near [2]net.Conn
	for i := range far {
		conn, err := net.Dial("tcp", b.target.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		far[i], near[i] = b.accept(), noting{b.own(conn).(*net.TCPConn), closed}
	}
	b.link.Join(near[0], near[1])
	for _, conn := range far {
		conn.(*net.TCPConn).CloseWrite()
	}
	for range near {
		select {
		case <-closed:
		case <-time.After(20 * time.Second):
			t.Fatal("a connection was left open")
		}
	}
}

func TestHalfOpen(t *testing.T) {
	for _, lost := range []linktest.Side{linktest.Client, linktest.Target} {
		b := newBed(t, linktest.Config{})
		told, kept := b.open()
		if lost == linktest.Target {
			told, kept = kept, told
		}
		b.link.HalfOpen(lost)
		expectReset(t, told)
		send(t, kept, "into the void")
		expectSilence(t, kept)
		send(t, kept, "still")
		b.open() // others are well
	}
}

func TestDrop(t *testing.T) {
	b := newBed(t, linktest.Config{})
	client, target := b.open()
	lucky, luckyTarget := b.open()
	b.link.Set(linktest.Config{Up: linktest.Direction{Drop: true}, Down: linktest.Direction{Drop: true}})
	send(t, client, "lost")
	send(t, target, "lost")
	expectSilence(t, target)
	expectSilence(t, client)
	late := b.dial()
	send(t, late, "hello again")
	b.target.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := b.target.Accept(); err == nil {
		t.Fatal("a connection went through the black hole")
	}
	b.link.Set(linktest.Config{})
	expect(t, b.accept(), "hello again")
	send(t, lucky, "lost nothing")
	expect(t, luckyTarget, "lost nothing")
	send(t, client, "hole")
	client.Close() // is not told either
	expectSilence(t, target)
}

// TestDropHidesReset: the link tells no one, although its writes fail.
func TestDropHidesReset(t *testing.T) {
	b := newBed(t, linktest.Config{})
	client, target := b.open()
	b.link.Set(linktest.Config{Down: linktest.Direction{Drop: true}})
	target.(*net.TCPConn).SetLinger(0)
	target.Close()
	for range 3 {
		send(t, client, "anybody?")
		expectSilence(t, client)
	}
}

func TestStallHoldsNewConnections(t *testing.T) {
	b := newBed(t, linktest.Config{Up: linktest.Direction{Stall: true}})
	client := b.dial()
	send(t, client, "hello")
	b.target.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := b.target.Accept(); err == nil {
		t.Fatal("a connection went through")
	}
	b.link.Set(linktest.Config{})
	expect(t, b.accept(), "hello")
}

func TestCutAfter(t *testing.T) {
	const cut = 100_000
	for _, way := range []string{"up", "down"} {
		t.Run(way, func(t *testing.T) {
			c := linktest.Config{Up: linktest.Direction{CutAfter: cut}}
			if way == "down" {
				c = linktest.Config{Down: linktest.Direction{CutAfter: cut}}
			}
			b := newBed(t, c)
			src, dst := b.open()
			want := int64(cut - len("hello"))
			if way == "down" {
				src, dst = dst, src
				want = cut
			}
			written := make(chan error)
			go func() {
				for {
					if _, err := src.Write(make([]byte, 9999)); err != nil {
						written <- err
						return
					}
				}
			}()
			if got := expectReset(t, dst); got != want {
				t.Errorf("got %d bytes, want %d", got, want)
			}
			<-written
		})
	}
}

// expectRefusal dials; the reset may overtake the dial's end.
func (b *bed) expectRefusal() {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.addr)
	if err == nil {
		expectReset(b.t, b.own(conn))
	} else if !errors.Is(err, syscall.ECONNRESET) {
		b.t.Errorf("got %v, want a reset", err)
	}
}

func TestRefuse(t *testing.T) {
	b := newBed(t, linktest.Config{})
	client, target := b.open()
	b.link.Set(linktest.Config{Refuse: true})
	b.expectRefusal()
	send(t, client, "old")
	expect(t, target, "old")
}

func TestTargetIsDown(t *testing.T) {
	b := newBed(t, linktest.Config{})
	b.target.Close()
	b.expectRefusal()
}

// TestHidesLittle: a link that lets nothing through takes little.
func TestHidesLittle(t *testing.T) {
	b := newBed(t, linktest.Config{})
	client, _ := b.open()
	b.link.Set(linktest.Config{Up: linktest.Direction{Stall: true, Buffer: 1}})
	client.(*net.TCPConn).SetWriteBuffer(16 << 10)
	client.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := client.Write(make([]byte, 16<<20)); err == nil || n > 512<<10 {
		t.Errorf("wrote %d bytes, %v; want at most 512 KiB", n, err)
	}
}

func TestClose(t *testing.T) {
	b := newBed(t, linktest.Config{Down: linktest.Direction{Stall: true}})
	client, target := b.open()
	send(t, target, "never arrives")
	b.link.Set(linktest.Config{Up: linktest.Direction{Stall: true}, Down: linktest.Direction{Stall: true}})
	waiting := b.dial()
	if err := b.link.Close(); err != nil {
		t.Error(err)
	}
	for _, conn := range []net.Conn{client, target, waiting} {
		expectReset(t, conn)
	}
	if conn, err := net.Dial("tcp", b.addr); err == nil {
		conn.Close()
		t.Error("the link listens still")
	}
	if _, err := b.link.Listen(b.target.Addr().String()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want closed", err)
	}
	far, near := net.Pipe()
	far2, near2 := net.Pipe()
	b.link.Join(near, near2)
	for _, conn := range []net.Conn{far, far2} {
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("got %v, want EOF", err)
		}
	}
}

// TestChaos changes everything while connections come and go: what arrives is
// a beginning of what was sent, and nothing is left.
func TestChaos(t *testing.T) {
	b := newBed(t, linktest.Config{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := b.target.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer conn.Close(); io.Copy(conn, conn) })
		}
	})
	for worker := range 8 {
		wg.Go(func() {
			for range 25 {
				echoSome(t, b.addr, byte(worker))
			}
		})
	}
	rng := rand.New(rand.NewPCG(3, 4))
	random := func() linktest.Direction {
		return linktest.Direction{
			Delay:    time.Duration(rng.IntN(3)) * time.Millisecond,
			Rate:     rng.IntN(3) * 10_000_000,
			Stall:    rng.IntN(8) == 0,
			Drop:     rng.IntN(20) == 0,
			CutAfter: rng.Int64N(2) * rng.Int64N(300_000),
		}
	}
	for i := range 300 {
		b.link.Set(linktest.Config{Up: random(), Down: random(), Refuse: rng.IntN(10) == 0})
		switch i % 50 {
		case 20:
			b.link.Reset()
		case 40:
			b.link.HalfOpen(linktest.Side(rng.IntN(2)))
		}
		time.Sleep(time.Millisecond)
	}
	b.link.Close()
	b.target.Close()
	wg.Wait()
}

// echoSome fails the test if a byte is not the one that was sent.
func echoSome(t *testing.T, addr string, first byte) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return // the link was closed
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	sent := make([]byte, 200_000)
	for i := range sent {
		sent[i] = first + byte(i%251)
	}
	var wg sync.WaitGroup
	wg.Go(func() { conn.Write(sent) })
	got := make([]byte, len(sent))
	n, _ := io.ReadFull(conn, got)
	wg.Wait()
	for i := range n {
		if got[i] != sent[i] {
			t.Errorf("byte %d is not what was sent", i)
			return
		}
	}
}
