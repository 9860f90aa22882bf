package linktest

import (
	"cmp"
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
)

// Side is one end of a connection over a link.
type Side int

const (
	Client Side = iota // the side that dialed the link
	Target             // the side that the link dialed
)

// Link is one link. Any number of connections may go over it, to any number of
// targets. It is made by [New], safe for concurrent use, and must be closed.
type Link struct {
	ctx    context.Context // until Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // accept loops and connections

	mu        sync.Mutex // guards the fields below, and those of connections
	config    Config
	changed   sync.Cond    // config has changed, or Close was called
	busyUntil [2]time.Time // up and down: when the last byte so far will have passed
	listeners []net.Listener
	conns     map[*conn]bool
}

// New returns a link without connections.
func New(c Config) *Link {
	l := &Link{config: c, conns: map[*conn]bool{}}
	l.changed.L = &l.mu
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Listen makes the link listen on a port of 127.0.0.1, and returns its address. For
// each connection the link dials target, a host:port, and resets the client's if that
// fails.
func (l *Link) Listen(target string) (addr string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		listener.Close()
		return "", net.ErrClosed
	}
	l.listeners = append(l.listeners, listener)
	l.wg.Go(func() { l.acceptLoop(listener, target) })
	return listener.Addr().String(), nil
}

// Join connects two connections of the caller over the link, and returns at once. The
// link closes them. A connection without CloseWrite, such as a net.Pipe, is closed when
// the other side has ended, and what it still had to send is lost.
func (l *Link) Join(client, target net.Conn) {
	c := newConn(l, client, target)
	l.mu.Lock()
	open := l.ctx.Err() == nil
	if open {
		l.conns[c] = true
		l.wg.Go(c.relayBoth)
	}
	l.mu.Unlock()
	if !open {
		c.resetBoth()
	}
}

// Set changes the configuration, for all connections. Delay and Rate apply to the
// bytes that come in later, everything else applies at once.
func (l *Link) Set(c Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := range l.busyUntil {
		if c.direction(at).Rate != l.config.direction(at).Rate {
			l.busyUntil[at] = time.Time{}
		}
	}
	l.config = c
	l.changed.Broadcast()
	for conn := range l.conns {
		conn.wakeLocked()
	}
}

// Reset resets both sides of all connections.
func (l *Link) Reset() {
	for _, c := range l.openConns() {
		c.resetBoth()
	}
}

// HalfOpen resets one side of all connections. The other side learns nothing: what it
// sends is dropped, and nothing comes. A load balancer that has died leaves such
// connections.
func (l *Link) HalfOpen(lost Side) {
	for _, c := range l.openConns() {
		c.resetSide(lost)
	}
}

// Close stops listening, resets all connections and waits for the link's goroutines.
// It returns nil.
func (l *Link) Close() error {
	l.mu.Lock()
	l.cancel()
	l.changed.Broadcast()
	for _, listener := range l.listeners {
		listener.Close()
	}
	l.mu.Unlock()
	l.Reset()
	l.wg.Wait()
	return nil
}

func (l *Link) openConns() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.conns))
}

// socketBuffer is the size of the system's buffers of a connection at each side of the
// link. (Linux doubles it, for its own use.) It has room for several of loopback's
// segments of 64 KiB: if one fills it, Linux's sender sometimes waits for 200 ms before
// it looks for room again.
const socketBuffer = 128 << 10

// acceptLoop connects the connections of one listener to target.
func (l *Link) acceptLoop(listener net.Listener, target string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.connectTarget(client, target) })
	}
}

// connectTarget dials the target, once Up neither drops nor stalls.
func (l *Link) connectTarget(client net.Conn, target string) {
	l.mu.Lock()
	refuse := l.config.Refuse
	for !refuse && l.ctx.Err() == nil && (l.config.Up.Drop || l.config.Up.Stall) {
		l.changed.Wait()
	}
	l.mu.Unlock()
	if refuse {
		abort.Reset(client, 0)
		return
	}
	far, err := (&net.Dialer{}).DialContext(l.ctx, "tcp", target)
	if err != nil {
		abort.Reset(client, 0)
		return
	}
	for _, conn := range []net.Conn{client, far} {
		// If this fails, the buffers have the system's size.
		conn.(*net.TCPConn).SetReadBuffer(socketBuffer)
		conn.(*net.TCPConn).SetWriteBuffer(socketBuffer)
	}
	l.Join(client, far)
}

// Config is how a link behaves. The zero value is a plain relay.
type Config struct {
	Up   Direction // from the client to the target
	Down Direction // from the target to the client

	// Refuse resets new connections. Those that are open live on.
	Refuse bool
}

// direction returns Up for 0 and Down for 1.
func (c *Config) direction(at int) *Direction {
	if at == 0 {
		return &c.Up
	}
	return &c.Down
}

// Direction is how one direction of a link behaves.
type Direction struct {
	// Delay is how long a byte is under way, beside what Rate makes it wait.
	// Zero means none.
	Delay time.Duration

	// Rate is how many bytes pass per second. All connections of the link share
	// them. Zero means no limit.
	Rate int

	// Buffer is how many bytes of a connection the link holds, beyond those
	// that are under way at its rate for its delay (without a limit: at 1
	// Gbit/s), before it stops to read. Zero means 64 KiB.
	Buffer int

	// Stall holds back what has not arrived, ends and resets included. When it
	// is cleared all that was held arrives at once. New connections wait as well
	// if it is the way up.
	Stall bool

	// Drop drops what has not arrived, also ends and resets, as a black hole does. A
	// connection that has lost something stays silent in this direction after Drop is
	// cleared: TCP never delivers a stream with a gap. If it is Up, new connections are
	// accepted but reach the target only when Drop is cleared.
	Drop bool

	// CutAfter resets a connection on both sides when so many of its bytes have
	// passed in this direction; no more than these arrive. Zero means never.
	CutAfter int64
}

const (
	defaultBuffer = 64 << 10
	maxChunk      = 16 << 10
	minChunk      = 256

	// unlimited is the rate by which the capacity of a link without a rate is
	// computed: 1 Gbit/s.
	unlimited = 125_000_000
)

// capacity returns how many bytes of a connection the link may hold.
func (d Direction) capacity() int {
	buffer, rate := cmp.Or(max(d.Buffer, 0), defaultBuffer), cmp.Or(max(d.Rate, 0), unlimited)
	return buffer + int(float64(rate)*d.Delay.Seconds())
}

// chunkSize returns how many bytes are passed on in one piece: those of some 5 ms.
func (d Direction) chunkSize() int {
	if d.Rate <= 0 {
		return maxChunk
	}
	return min(max(d.Rate/200, minChunk), maxChunk)
}
