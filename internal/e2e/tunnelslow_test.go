package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/tunnel"
)

// Rates in bytes a second, and the queues of a wire: in the long one a session
// finds room for all that it sends, in the short one TCP loses packets.
const (
	tenMbit = 10_000_000 / 8
	oneMbit = 1_000_000 / 8

	longQueue  = tenMbit / 4
	shortQueue = tenMbit / 10
)

// wireHub is a hub at the near end of a wire, with an agent at the far one.
func wireHub(t *testing.T, delay time.Duration, rate int64, queue int) (*slowWire, *hub) {
	t.Helper()
	w := &slowWire{delay: delay, rate: rate, queue: queue, ended: make(chan struct{})}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	if err := w.createWire(t.Context(), sharedBed(t).Network); err != nil {
		t.Fatal(err)
	}
	startTargets(t, w.Far)
	h := newHub(t, &tunnel.Server{}, listen(t, w.Near, pathAddress))
	startAgent(t, w.Far, agentInput{Invitation: h.invite(pathAddress), Allow: targets})
	h.session(20 * time.Second)
	return w, h
}

// bulk is one stream that carries as much as it can, until stop is called,
// which returns the rate.
func (h *hub) bulk(up bool) (stop func() (bytesPerSecond float64)) {
	h.t.Helper()
	target := sourceTarget
	if up {
		target = sinkTarget
	}
	conn, err := h.dial(h.t.Context(), target)
	if err != nil {
		h.t.Fatal(err)
	}
	began, ended := time.Now(), make(chan int64, 1)
	go func() {
		var n int64
		if up {
			n, _ = io.Copy(conn, zeros{})
		} else {
			n, _ = io.Copy(io.Discard, conn)
		}
		ended <- n
	}()
	stop = sync.OnceValue(func() float64 {
		took := time.Since(began)
		conn.Close()
		return float64(<-ended) / took.Seconds()
	})
	h.t.Cleanup(func() { stop() })
	return stop
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// interactive has each of count streams echo a byte, and again, until ctx ends,
// and returns how long each took.
func (h *hub) interactive(ctx context.Context, count int) []time.Duration {
	h.t.Helper()
	var (
		mu    sync.Mutex // guards took
		took  []time.Duration
		users sync.WaitGroup
	)
	for range count {
		conn, err := h.dial(h.t.Context(), echoTarget)
		if err != nil {
			h.t.Fatal(err)
		}
		users.Go(func() {
			defer conn.Close()
			keystrokes(ctx, conn, func(d time.Duration, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					h.t.Errorf("an interactive stream: %v after %v", err, d)
				}
				took = append(took, d)
			})
		})
	}
	users.Wait()
	return took
}

// keystrokes sends a byte when the one before has come back, until ctx ends or
// it does not come.
func keystrokes(ctx context.Context, conn net.Conn, done func(time.Duration, error)) {
	for ctx.Err() == nil {
		began := time.Now()
		err := echo(conn, began.Add(patience))
		done(time.Since(began), err)
		if err != nil {
			return
		}
	}
}

// On a link of 10 Mbit/s with a round trip of 100 ms fifty people type while a
// file is copied, and none of them waits.
func TestTunnelSlowLink(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		up    bool
		queue int
	}{
		{"down", false, longQueue},
		{"up", true, longQueue},
		{"down, with loss", false, shortQueue},
		{"up, with loss", true, shortQueue},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, h := wireHub(t, 50*time.Millisecond, tenMbit, tt.queue)
			alone, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			t.Logf("without bulk: %s", spread(h.interactive(alone, 50)))
			stop := h.bulk(tt.up)
			wait(t, 3*time.Second) // TCP's slow start
			ctx, cancel := context.WithTimeout(t.Context(), duration(t, "CAUSEWAY_E2E_BULK", 10*time.Second))
			defer cancel()
			took := h.interactive(ctx, 50)
			rate := stop()
			t.Logf("with bulk: %s; bulk %.2f Mbit/s; %d packets dropped", spread(took), rate*8/1e6, w.dropped.Load())
			// The goal is a p99 of 500 ms, which the line above tells. A machine
			// under load adds seconds to it, and so does a lost packet, which what
			// is behind it waits for: what waited for bulk would do so each time.
			if p50 := took[len(took)/2]; p50 > 2*time.Second {
				t.Errorf("half of the bytes were there and back after %v, want 2 s at most", p50)
			}
			if rate < tenMbit/4 {
				t.Errorf("bulk has %.2f Mbit/s of 10", rate*8/1e6)
			}
			wantOneSession(t, h, 101)
		})
	}
}

// Nobody is taken for dead because the link is slow: at 1 Mbit/s bulk goes on
// for longer than a silent peer would live.
func TestTunnelVerySlowLink(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		up   bool
	}{{"down", false}, {"up", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, h := wireHub(t, 50*time.Millisecond, oneMbit, shortQueue)
			stop := h.bulk(tt.up)
			ctx, cancel := context.WithTimeout(t.Context(), duration(t, "CAUSEWAY_E2E_BULK", 35*time.Second))
			defer cancel()
			took := h.interactive(ctx, 1)
			t.Logf("with bulk: %s; bulk %.2f Mbit/s; %d packets dropped", spread(took), stop()*8/1e6, w.dropped.Load())
			wantOneSession(t, h, 2)
		})
	}
}

const wireMTU = 1500

// A slowWire is two hosts with a link between them that has a delay and a rate. The
// link's ends are TUN devices, and what is between them passes packets from one
// to the other in user space: TCP runs from host to host, sees the delay and
// loses packets where the queue is full, as with netem, which not every kernel
// has.
type slowWire struct {
	Near, Far *bed.Namespace

	delay   time.Duration // of one direction
	rate    int64         // bytes a second
	queue   int           // at most so many bytes wait at an end
	dropped atomic.Int64  // packets that found the queue full
	devices []*os.File
	ended   chan struct{}
	wg      sync.WaitGroup
}

// createWire makes the hosts and the link.
func (w *slowWire) createWire(ctx context.Context, n *bed.Network) error {
	if err := n.AddNamespaces(ctx, &w.Near, &w.Far); err != nil {
		return err
	}
	for _, end := range []struct {
		ns        *bed.Namespace
		own, peer string
	}{{w.Near, bed.NearIP, bed.FarIP}, {w.Far, bed.FarIP, bed.NearIP}} {
		device, err := openTUN(end.ns, "eth0")
		if err != nil {
			return err
		}
		w.devices = append(w.devices, device)
		err = end.ns.RunIP(ctx, "addr add "+end.own+" peer "+end.peer+" dev eth0", fmt.Sprintf("link set eth0 up mtu %d", wireMTU))
		if err != nil {
			return err
		}
	}
	w.carryPackets(w.devices[0], w.devices[1])
	w.carryPackets(w.devices[1], w.devices[0])
	return nil
}

// close ends the link and removes the namespaces.
func (w *slowWire) close() error {
	close(w.ended)
	for _, device := range w.devices {
		device.Close()
	}
	w.wg.Wait()
	return bed.RemoveNamespaces(w.Near, w.Far)
}

// openTUN makes a device whose packets are read from the file and written to it.
func openTUN(n *bed.Namespace, name string) (*os.File, error) {
	var fd int
	err := n.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		request, err := unix.NewIfreq(name)
		if err == nil {
			request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		if err != nil {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a TUN device: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// A packet on its way.
type packet struct {
	data    []byte
	arrives time.Time
}

// carryPackets passes packets from one device to the other until close.
func (w *slowWire) carryPackets(from, to *os.File) {
	flight := make(chan packet, 1<<16) // the queue's bound and the rate keep it far from full
	w.wg.Go(func() {
		defer close(flight)
		w.sendPackets(from, flight)
	})
	w.wg.Go(func() {
		for p := range flight {
			timer := time.NewTimer(time.Until(p.arrives))
			select {
			case <-timer.C:
				to.Write(p.data) // a device that is down loses it
			case <-w.ended:
				timer.Stop()
			}
		}
	})
}

// sendPackets is the near end of a direction: a queue that empties at the rate.
func (w *slowWire) sendPackets(from *os.File, flight chan<- packet) {
	var idle time.Time // when all that is in the queue has left it
	buf := make([]byte, wireMTU)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		now, rate := time.Now(), float64(w.rate)
		if idle.Before(now) {
			idle = now
		}
		if idle.Sub(now).Seconds()*rate+float64(n) > float64(w.queue) {
			w.dropped.Add(1)
			continue
		}
		idle = idle.Add(time.Duration(float64(n) / rate * float64(time.Second)))
		select {
		case flight <- packet{append([]byte(nil), buf[:n]...), idle.Add(w.delay)}:
		case <-w.ended:
			return
		}
	}
}
