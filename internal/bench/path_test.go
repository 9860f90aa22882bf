package bench

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A path is what packets pass between two network namespaces: TCP sees the delay, the rate, the
// queue and the loss as it would on a line, without netem in the kernel. It wants root.
type path struct {
	near, far int // files of the namespaces: of the server and the client, of the agent and the target
	tuns      [2]*os.File
	ways      sync.WaitGroup
}

const (
	hostEnv           = "CAUSEWAY_BENCH_HOST" // where a role listens, if not on 127.0.0.1
	nearHost, farHost = "10.77.0.1", "10.77.0.2"
	packetSize        = 1500
)

// newPath starts one that behaves as l does each way.
func newPath(l line) (*path, error) {
	p := &path{}
	var err error
	if p.near, p.tuns[0], err = newNamespace(nearHost, l.Control); err != nil {
		return nil, err
	}
	if p.far, p.tuns[1], err = newNamespace(farHost, l.Control); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	for i, from := range p.tuns {
		p.ways.Go(func() { l.passPackets(p.tuns[1-i], from) })
	}
	return p, nil
}

func (p *path) Close() error {
	err := unix.Close(p.near)
	for _, tun := range p.tuns {
		if tun != nil {
			err = errors.Join(err, tun.Close())
		}
	}
	if p.far > 0 {
		err = errors.Join(err, unix.Close(p.far))
	}
	p.ways.Wait()
	return err
}

// enter calls f on a thread in the role's namespace, if there is a path: what f starts stays there.
func (p *path) enter(role string, f func() error) error {
	if p == nil {
		return f()
	}
	namespace, host := p.near, nearHost
	if role == "agent" || role == "target" {
		namespace, host = p.far, farHost
	}
	os.Setenv(hostEnv, host)
	defer os.Unsetenv(hostEnv)
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(home)
	if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = f()
	if unix.Setns(home, unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // else the thread ends with the goroutine
	}
	return err
}

// newNamespace makes a network namespace with a TUN device of this address, and this congestion control.
func newNamespace(host, control string) (namespace int, tun *os.File, err error) {
	made := make(chan error)
	go func() { // its thread ends with it
		runtime.LockOSThread()
		made <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("bench: a network namespace: %w", err)
			}
			if namespace, err = unix.Open("/proc/thread-self/ns/net", unix.O_CLOEXEC, 0); err != nil {
				return err
			}
			if tun, err = openTun("tun0"); err != nil {
				return fmt.Errorf("bench: a TUN device: %w", err)
			}
			for _, command := range []string{
				"ip link set lo up", "ip addr add " + host + "/30 dev tun0", "ip link set tun0 up txqueuelen 10000",
				"sysctl -qw net.ipv4.tcp_wmem=4096\t65536\t67108864", "sysctl -qw net.ipv4.tcp_rmem=4096\t131072\t67108864",
				"sysctl -qw net.ipv4.tcp_congestion_control=" + control,
			} {
				words := strings.Split(command, " ")
				if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
					return fmt.Errorf("bench: %s: %w: %s", command, err, out)
				}
			}
			return nil
		}()
	}()
	return namespace, tun, <-made
}

func openTun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// A packet is due at an instant.
type packet struct {
	due  time.Time
	data []byte
}

// queueBytes is the buffer before the line: a round trip at its rate, as operators dimension it, and
// 64 packets at least.
func (l line) queueBytes() int {
	return max(64*packetSize, int(l.bytesPerSecond()*l.RoundTrip.Seconds()))
}

func (l line) bytesPerSecond() float64 { return l.Kbit * 1000 / 8 }

// passPackets moves packets one way until the device is closed. It drops some at random, and those
// for which the queue has no room.
func (l line) passPackets(to io.Writer, from io.Reader) {
	underway := make(chan packet, 1<<16)
	var sender sync.WaitGroup
	defer sender.Wait()
	defer close(underway)
	sender.Go(func() {
		for p := range underway {
			time.Sleep(time.Until(p.due))
			to.Write(p.data)
		}
	})
	buf := make([]byte, packetSize)
	free := time.Now() // when the line has sent what is queued
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		now := time.Now()
		free = maxTime(free, now)
		queued := free.Sub(now).Seconds() * l.bytesPerSecond()
		if rand.Float64() < l.Loss || queued+float64(n) > float64(l.queueBytes()) {
			continue
		}
		free = free.Add(time.Duration(float64(n) / l.bytesPerSecond() * float64(time.Second)))
		underway <- packet{free.Add(l.RoundTrip / 2), append([]byte(nil), buf[:n]...)}
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
