package linktest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
)

// Side is one end of a connection over a link.
type Side int

const (
	Client Side = iota // who dialed the link
	Target             // whom the link dialed
)

// Stats counts what went over a link.
type Stats struct {
	Opened   int   // connections so far
	Open     int   // connections now
	Up, Down int64 // bytes that arrived
}

// Link is one link. Any number of connections may go over it, to any number of
// targets. It is made by [New], safe for concurrent use, and must be closed.
type Link struct {
	ctx      context.Context // until Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup // accept loops and connections
	up, down way

	mu        sync.Mutex // guards the fields below
	config    Config
	changed   chan struct{} // closed and made anew when config changes
	listeners []net.Listener
	conns     map[*conn]struct{}
	opened    int
}

// way is one direction, over which all connections share the rate.
type way struct {
	get       func(*Config) *Direction
	delivered atomic.Int64

	mu   sync.Mutex // guards free
	free time.Time  // when the last byte so far will have passed
}

// New returns a link over which nothing goes yet.
func New(c Config) *Link {
	l := &Link{config: c, changed: make(chan struct{}), conns: map[*conn]struct{}{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.up.get = func(c *Config) *Direction { return &c.Up }
	l.down.get = func(c *Config) *Direction { return &c.Down }
	return l
}

// Listen makes the link listen on a port of 127.0.0.1, and returns its
// address. Each connection to it leads to target, a host:port that is dialed
// for each anew; the client's is reset if that fails.
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
	l.wg.Go(func() { l.accept(listener, target) })
	return listener.Addr().String(), nil
}

// Join leads two connections over the link that the caller made, and returns
// at once. They are the link's from then on, which closes them. One that has
// no CloseWrite, such as a net.Pipe, is closed when the other side has ended,
// and what it still had to say is lost.
func (l *Link) Join(client, target net.Conn) {
	c := newConn(l, client, target)
	if !l.add(c) {
		abort.Reset(client, 0)
		abort.Reset(target, 0)
		return
	}
	go func() {
		defer l.wg.Done()
		c.run()
	}()
}

// Config returns the present configuration.
func (l *Link) Config() Config {
	c, _ := l.current()
	return c
}

// Set changes how the link behaves, for all its connections. Delay and Rate
// are those of the bytes that come in from then on, everything else is
// effective at once.
func (l *Link) Set(c Config) {
	l.mu.Lock()
	old := l.config
	l.config = c
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	for _, w := range []*way{&l.up, &l.down} {
		if w.get(&old).Rate != w.get(&c).Rate {
			w.mu.Lock()
			w.free = time.Time{}
			w.mu.Unlock()
		}
	}
}

// Reset resets both sides of all connections.
func (l *Link) Reset() {
	for _, c := range l.open() {
		c.reset()
	}
}

// HalfOpen resets one side of all connections and tells the other one
// nothing: what it sends is swallowed and nothing comes. That is what a load
// balancer leaves behind that died.
func (l *Link) HalfOpen(lost Side) {
	for _, c := range l.open() {
		c.forget(lost)
	}
}

// Stats returns the counts so far.
func (l *Link) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{l.opened, len(l.conns), l.up.delivered.Load(), l.down.delivered.Load()}
}

// Close stops to listen, resets all connections and waits until nothing of
// the link is left. It returns nil.
func (l *Link) Close() error {
	l.mu.Lock()
	l.cancel()
	listeners := l.listeners
	l.listeners = nil
	l.mu.Unlock()
	for _, listener := range listeners {
		listener.Close()
	}
	l.Reset()
	l.wg.Wait()
	return nil
}

// current returns the configuration, and a channel that is closed when it
// changes.
func (l *Link) current() (Config, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.config, l.changed
}

// add reports whether the link is open; l.wg then waits for the connection.
func (l *Link) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.wg.Add(1)
	l.conns[c] = struct{}{}
	l.opened++
	return true
}

func (l *Link) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

func (l *Link) open() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	conns := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	return conns
}
