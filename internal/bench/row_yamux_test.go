package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/yamux"

	"github.com/causewayproject/causeway/internal/mux"
)

var (
	yamuxRow     = newYamuxRow("yamux", yamuxKind{secure: plainTLS, chunk: chunkSize})
	yamuxFairRow = newYamuxRow("yamux-fair", yamuxKind{secure: batchedTLS, window: 1 << 20, chunk: mux.MaxFirst})
)

// A yamuxKind is how a row uses hashicorp/yamux.
type yamuxKind struct {
	secure secure
	window uint32 // a stream's; zero: yamux's default
	chunk  int    // bytes of a relay's buffer, which are the most that a frame carries
}

func newYamuxRow(name string, kind yamuxKind) row {
	return row{
		name:       name,
		newAgent:   func(s *Setup) (agent, error) { return newYamuxAgent(s, kind) },
		newServer:  func(s *Setup) (server, error) { return newYamuxServer(s, kind) },
		idleAgents: 200,
	}
}

func (k yamuxKind) config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput = io.Discard
	if k.window > 0 {
		c.MaxStreamWindowSize = k.window
	}
	return c
}

func batchedTLS(conn net.Conn, wrap func(net.Conn) *tls.Conn) (net.Conn, error) {
	c, err := newCarrier(conn, wrap)
	if err != nil {
		return nil, err
	}
	return newBatcher(c), nil
}

type yamuxAgent struct {
	config *tls.Config
	target string
	kind   yamuxKind
	wg     sync.WaitGroup
	open   []*yamux.Session
}

func newYamuxAgent(s *Setup, kind yamuxKind) (agent, error) {
	config, err := clientTLS(s.Dir)
	return &yamuxAgent{config: config, target: s.Target, kind: kind}, err
}

func (*yamuxAgent) addr() string { return "" }

func (a *yamuxAgent) connect(ctx context.Context, server string, n int) (string, error) {
	for range n {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", server)
		if err != nil {
			return "", err
		}
		carrier, err := a.kind.secure(conn, func(c net.Conn) *tls.Conn { return tls.Client(c, a.config) })
		if err != nil {
			return "", err
		}
		session, err := yamux.Client(carrier, a.kind.config())
		if err != nil {
			return "", fmt.Errorf("bench: yamux: %w", err)
		}
		a.open = append(a.open, session)
		a.wg.Go(func() { a.serve(session) })
	}
	return "", nil
}

func (a *yamuxAgent) serve(session *yamux.Session) {
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return
		}
		a.wg.Go(func() { serveStream(stream, a.target, a.kind.chunk) })
	}
}

func (a *yamuxAgent) Close() error {
	for _, session := range a.open {
		session.Close()
	}
	a.wg.Wait()
	return nil
}

type yamuxServer struct {
	*listener
	kind  yamuxKind
	first atomic.Pointer[yamux.Session]
	count atomic.Int64
}

func newYamuxServer(s *Setup, kind yamuxKind) (server, error) {
	config, err := serverTLS(s.Dir)
	if err != nil {
		return nil, err
	}
	y := &yamuxServer{kind: kind}
	y.listener, err = listen(func(conn net.Conn) {
		carrier, err := kind.secure(conn, func(c net.Conn) *tls.Conn { return tls.Server(c, config) })
		if err != nil {
			return
		}
		session, err := yamux.Server(carrier, kind.config())
		if err != nil {
			return
		}
		y.first.CompareAndSwap(nil, session)
		y.count.Add(1)
		<-session.CloseChan()
	})
	return y, err
}

func (y *yamuxServer) sessions() int { return int(y.count.Load()) }

func (y *yamuxServer) dial(context.Context) (net.Conn, error) {
	session := y.first.Load()
	if session == nil {
		return nil, errors.New("bench: yamux: there is no session")
	}
	return session.OpenStream()
}

func (y *yamuxServer) relay(client, stream net.Conn) { relay(client, stream, y.kind.chunk) }

// batchLimit bounds what waits in a batcher.
const batchLimit = 256 << 10

// A batcher is a carrier whose writes return before they are sent: what was
// written while the carrier was busy goes out as one write.
type batcher struct {
	*carrier
	done chan struct{}

	mu     sync.Mutex // guards the fields below
	change sync.Cond
	queue  []byte
	err    error // sticky
}

func newBatcher(c *carrier) *batcher {
	b := &batcher{carrier: c, done: make(chan struct{})}
	b.change.L = &b.mu
	go b.writeLoop()
	return b
}

func (b *batcher) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil && len(b.queue) > 0 && len(b.queue)+len(p) > batchLimit {
		b.change.Wait()
	}
	if b.err != nil {
		return 0, b.err
	}
	b.queue = append(b.queue, p...)
	b.change.Broadcast()
	return len(p), nil
}

// writeLoop ends at the first error, which Close makes.
func (b *batcher) writeLoop() {
	defer close(b.done)
	var spare []byte
	for {
		b.mu.Lock()
		for len(b.queue) == 0 && b.err == nil {
			b.change.Wait()
		}
		if b.err != nil {
			b.mu.Unlock()
			return
		}
		spare, b.queue = b.queue, spare[:0]
		b.change.Broadcast()
		b.mu.Unlock()
		_, err := b.carrier.Write(spare)
		if err == nil {
			err = b.below.Flush()
		}
		if err != nil {
			b.recordError(err)
		}
	}
}

func (b *batcher) recordError(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.change.Broadcast()
}

// Close drops what was not sent, and waits for the writer.
func (b *batcher) Close() error {
	b.recordError(net.ErrClosed)
	err := b.below.Close()
	<-b.done
	return err
}
