package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const wireMTU = 1500

// A Wire is two hosts with a link between them that has a delay and a rate. The
// link's ends are TUN devices, and what is between them passes packets from one
// to the other in user space: TCP runs from host to host, sees the delay and
// loses packets where the queue is full, as with netem, which not every kernel
// has.
type Wire struct {
	Near, Far *Namespace

	delay   time.Duration
	queue   int
	rate    int64
	dropped atomic.Int64
	devices []*os.File
	ended   chan struct{}
	wg      sync.WaitGroup
}

// NewWire makes a wire: delay counts for one direction, rate is in bytes a second,
// and at most queue bytes wait at an end. The caller closes it.
func (b *Bed) NewWire(ctx context.Context, delay time.Duration, rate int64, queue int) (*Wire, error) {
	w := &Wire{delay: delay, rate: rate, queue: queue, ended: make(chan struct{})}
	if err := w.createWire(ctx, b.Network); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *Wire) createWire(ctx context.Context, n *Network) error {
	number := n.paths.Add(1)
	for _, end := range []struct {
		ns              **Namespace
		name, own, peer string
	}{{&w.Near, "near", NearIP, FarIP}, {&w.Far, "far", FarIP, NearIP}} {
		ns, err := n.addNamespace(ctx, fmt.Sprintf("%s%d", end.name, number))
		*end.ns = ns
		if err != nil {
			return err
		}
		device, err := ns.openTUN("eth0")
		if err != nil {
			return err
		}
		w.devices = append(w.devices, device)
		if err := runIP(ctx, "-n", ns.Name, "addr", "add", end.own, "peer", end.peer, "dev", "eth0"); err != nil {
			return err
		}
		if err := runIP(ctx, "-n", ns.Name, "link", "set", "eth0", "up", "mtu", fmt.Sprint(wireMTU)); err != nil {
			return err
		}
	}
	w.carryPackets(w.devices[0], w.devices[1])
	w.carryPackets(w.devices[1], w.devices[0])
	return nil
}

// Dropped returns how many packets found the queue full.
func (w *Wire) Dropped() int64 { return w.dropped.Load() }

// Close ends the link and removes the namespaces.
func (w *Wire) Close() error {
	close(w.ended)
	for _, device := range w.devices {
		device.Close()
	}
	w.wg.Wait()
	return removeMade(w.Near, w.Far)
}

// openTUN makes a device whose packets are read from the file and written to it.
func (n *Namespace) openTUN(name string) (*os.File, error) {
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
		return nil, fmt.Errorf("bed: make a TUN device: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// A packet on its way.
type packet struct {
	data    []byte
	arrives time.Time
}

// carryPackets passes packets from one device to the other until Close.
func (w *Wire) carryPackets(from, to *os.File) {
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
func (w *Wire) sendPackets(from *os.File, flight chan<- packet) {
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
