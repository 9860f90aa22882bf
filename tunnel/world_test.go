package tunnel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/causewayproject/causeway/internal/linktest"
	"github.com/causewayproject/causeway/tunnel"
)

// world is a real server with agents over TCP and WebSocket, each behind a
// link of its own, and a target.
type world struct {
	t      testing.TB
	s      *tunnel.Server
	links  []*linktest.Link
	target net.Listener
	noise  []byte // what is sent is a part of it
	counts
}

type counts struct {
	conns, whole, cut, aborted, noDial atomic.Int64
	bytes                              atomic.Int64
	worstDial, worstTransfer           atomic.Int64 // nanoseconds
}

const (
	worldAgents = 4
	// Agents and server find a dead carrier in deadAfter, so nothing may take
	// longer than dialBound and transferBound.
	deadAfter     = 5 * time.Second
	dialBound     = 10 * time.Second
	transferBound = 40 * time.Second
	maxTransfer   = 256 << 10
)

func newWorld(t *testing.T, faults bool) *world {
	authority, err := tunnel.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	// Without faults nothing is dead, however late a busy machine answers.
	keepAlive := tunnel.KeepAlive{}
	if faults {
		keepAlive = tunnel.KeepAlive{ProbeAfter: deadAfter / 3, DeadAfter: deadAfter}
	}
	w := &world{t: t, noise: make([]byte, 2*maxTransfer), s: &tunnel.Server{Authority: authority, KeepAlive: keepAlive, HandshakeTimeout: 5 * time.Second}}
	for i := range w.noise {
		w.noise[i] = byte(rand.Uint32())
	}
	if w.target, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(w.serveTarget)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving.Go(func() { w.s.Serve(context.Background(), l) })
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := tunnel.ListenWebSocket(plain, nil)
	serving.Go(func() { w.s.Serve(context.Background(), h) })
	t.Cleanup(func() {
		w.s.Close()
		w.target.Close()
		serving.Wait()
		for _, link := range w.links {
			link.Close()
		}
	})
	for i := range worldAgents {
		address := l.Addr().String()
		if i%2 == 1 {
			address = h.Addr().String()
		}
		if faults {
			link := linktest.New(linktest.Config{})
			w.links = append(w.links, link)
			if address, err = link.Listen(address); err != nil {
				t.Fatal(err)
			}
		}
		if i%2 == 1 {
			address = "ws://" + address + "/"
		}
		w.agent(address, keepAlive)
	}
	w.reconnected()
	return w
}

func (w *world) agent(address string, keepAlive tunnel.KeepAlive) {
	inv, err := w.s.Invite(w.t.Context(), testCluster, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	a := &tunnel.Agent{
		Servers: []string{address}, KeepAlive: keepAlive, Credentials: &tunnel.MemoryCredentials{},
		Invitation:   func(context.Context) (tunnel.Invitation, error) { return inv, nil },
		Targets:      tunnel.Targets{Allow: []string{w.target.Addr().String()}},
		FirstBackoff: 100 * time.Millisecond, MaxBackoff: time.Second,
		HandshakeTimeout: 5 * time.Second, Grace: -1,
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
}

// An order is where in the noise the client's bytes begin, how many there
// are, the same for the answer, and whether the target breaks off.
type order struct{ Up, UpLen, Down, DownLen, Abort uint32 }

func randomOrder() order {
	size := func() uint32 { return rand.Uint32N(1 << (4 + rand.UintN(15))) } // mostly small
	return order{Up: rand.Uint32N(maxTransfer), UpLen: size(), Down: rand.Uint32N(maxTransfer), DownLen: size()}
}

func (w *world) serveTarget() {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := w.target.Accept()
		if err != nil {
			return
		}
		wg.Go(func() { w.answer(conn.(*net.TCPConn)) })
	}
}

// answer checks what comes, up to its end, sends what was asked for, and ends.
func (w *world) answer(conn *net.TCPConn) {
	defer conn.Close()
	var r order
	if binary.Read(conn, binary.BigEndian, &r) != nil {
		return
	}
	got, err := io.ReadAll(conn)
	if err == nil && !bytes.Equal(got, w.noise[r.Up:r.Up+r.UpLen]) {
		w.t.Errorf("the target got %d bytes and then an end, want %d", len(got), r.UpLen)
	}
	if err != nil {
		return
	}
	down := w.noise[r.Down : r.Down+r.DownLen]
	if r.Abort != 0 {
		conn.Write(down[:len(down)/2])
		conn.SetLinger(0)
		return
	}
	conn.Write(down)
}

// run makes n transfers, some at a time.
func (w *world) run(n int, mayAbort bool) {
	const clients = 24
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range (n + clients - 1) / clients {
				w.transfer(mayAbort)
			}
		})
	}
	wg.Wait()
}

// transfer is one connection; if it may abort, one of the sides does at times.
func (w *world) transfer(mayAbort bool) {
	ctx, cancel := context.WithTimeout(context.Background(), dialBound)
	defer cancel()
	began := time.Now()
	w.conns.Add(1)
	conn, err := w.s.Dialer(testCluster).DialContext(ctx, "tcp", w.target.Addr().String())
	took := time.Since(began)
	longest(&w.worstDial, took)
	if took > dialBound+5*time.Second {
		w.t.Errorf("a dial took %v, and its context ended after %v", took, dialBound)
	}
	if err != nil {
		w.noDial.Add(1)
		<-time.After(10 * time.Millisecond) // no busy loop without agents
		return
	}
	defer conn.Close()
	r := randomOrder()
	dice := rand.IntN(20)
	if mayAbort && dice == 0 {
		r.Abort = 1
	}
	began = time.Now()
	conn.SetDeadline(began.Add(transferBound)) // not later than exchange says
	w.exchange(conn, r, mayAbort && dice == 1)
	longest(&w.worstTransfer, time.Since(began))
}

// exchange judges how a transfer ended.
func (w *world) exchange(conn net.Conn, r order, leave bool) {
	began := time.Now()
	err := binary.Write(conn, binary.BigEndian, &r)
	if err == nil {
		_, err = conn.Write(w.noise[r.Up : r.Up+r.UpLen])
	}
	if err == nil {
		err = conn.(interface{ CloseWrite() error }).CloseWrite()
	}
	var got []byte
	if err == nil && leave {
		io.CopyN(io.Discard, conn, int64(r.DownLen/2))
		w.aborted.Add(1)
		return
	}
	if err == nil {
		got, err = io.ReadAll(conn)
	}
	w.bytes.Add(int64(len(got)) + int64(r.UpLen))
	want := w.noise[r.Down : r.Down+r.DownLen]
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && time.Since(began) >= transferBound: // a lost session may be a timeout too
		w.t.Errorf("a transfer of %d and %d bytes hung for %v, with %d here", r.UpLen, r.DownLen, transferBound, len(got))
	case !bytes.HasPrefix(want, got):
		w.t.Errorf("got other bytes than were sent")
	case err != nil:
		w.cut.Add(1)
	case len(got) < len(want), r.Abort != 0:
		w.t.Errorf("got the end after %d bytes of %d, abort %d", len(got), len(want), r.Abort)
	default:
		w.whole.Add(1)
	}
}

func longest(worst *atomic.Int64, took time.Duration) {
	for {
		old := worst.Load()
		if int64(took) <= old || worst.CompareAndSwap(old, int64(took)) {
			return
		}
	}
}

func (w *world) figures() string {
	return fmt.Sprintf("%d connections, %d whole, %d cut, %d left, %d not dialed; %d MB; worst dial %v, worst transfer %v",
		w.conns.Load(), w.whole.Load(), w.cut.Load(), w.aborted.Load(), w.noDial.Load(), w.bytes.Load()>>20,
		time.Duration(w.worstDial.Load()).Round(time.Millisecond), time.Duration(w.worstTransfer.Load()).Round(time.Millisecond))
}

// reconnected waits until each agent has a session, and no more than one.
func (w *world) reconnected() {
	w.t.Helper()
	w.until("the agents to be connected", func() bool {
		n := 0
		for _, c := range w.s.Status().Clusters {
			for _, s := range c.Sessions {
				if n++; s.Draining {
					return false
				}
			}
		}
		return n == worldAgents
	})
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited for %s: %+v", what, w.s.Status())
		}
	}
}

// usage is what the process has, with all agents connected and no stream.
type usage struct {
	goroutines, descriptors int
	heap                    uint64
}

func (w *world) calm() usage {
	w.t.Helper()
	w.reconnected()
	w.until("the streams to end", func() bool {
		for _, s := range w.s.Status().Clusters[0].Sessions {
			if s.Streams > 0 {
				return false
			}
		}
		return true
	})
	var u usage
	// Goroutines and descriptors of what has just ended go soon.
	w.until("the process to come to rest", func() bool {
		old := u
		u = measure()
		return u.goroutines == old.goroutines && u.descriptors == old.descriptors
	})
	return u
}

// calmAs waits for no more goroutines and descriptors than before: a busy
// machine may come to rest on the way.
func (w *world) calmAs(before usage) usage {
	w.t.Helper()
	var u usage
	w.until("the process to be as before: "+before.String(), func() bool {
		u = w.calm()
		return u.goroutines <= before.goroutines && u.descriptors <= before.descriptors
	})
	return u
}

func measure() usage {
	// What pools hold goes with the second collection.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fds, _ := os.ReadDir("/proc/self/fd") // where there is none, all have none
	return usage{runtime.NumGoroutine(), len(fds), m.HeapAlloc}
}

func (u usage) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, heap %d KB", u.goroutines, u.descriptors, u.heap>>10)
}

// check allows for a heap a tenth larger, and for what the runtime keeps.
func (u usage) check(t *testing.T, before usage) {
	t.Helper()
	const slack = 64 << 10 // it is 1.3 MB, and the collector's own wanders
	if u.goroutines > before.goroutines || u.descriptors > before.descriptors || u.heap > before.heap+before.heap/10+slack {
		t.Errorf("got %s, and before it was %s", u, before)
	}
}
