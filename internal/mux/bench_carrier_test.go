package mux_test

import (
	"bufio"
	"net"
	"sync"
	"testing"
)

// gathering is a socket below TLS that reads and writes many records at a time.
type gathering struct {
	net.Conn
	r  *bufio.Reader
	mu sync.Mutex    // guards w: a Close of TLS writes beside a Flush
	w  *bufio.Writer // nil until the handshake is over
}

func (g *gathering) Read(p []byte) (int, error) { return g.r.Read(p) }

func (g *gathering) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.w == nil {
		return g.Conn.Write(p)
	}
	return g.w.Write(p)
}

// gathered is TLS above it.
type gathered struct {
	net.Conn
	below *gathering
}

func (g gathered) Flush() error {
	g.below.mu.Lock()
	defer g.below.mu.Unlock()
	return g.below.w.Flush()
}

// Close ends a Flush that blocks first, which the Close of TLS waits for.
func (g gathered) Close() error {
	g.below.Conn.Close()
	return g.Conn.Close()
}

func gatheredPair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	var below []*gathering
	a, b := tlsPairOver(t, func(t testing.TB) (client, server net.Conn) {
		a, b := tcpPair(t)
		for _, c := range []net.Conn{a, b} {
			below = append(below, &gathering{Conn: c, r: bufio.NewReaderSize(c, 128<<10)})
		}
		return below[0], below[1]
	})
	for _, g := range below {
		g.w = bufio.NewWriterSize(g.Conn, 144<<10) // a batch and what TLS adds
	}
	return gathered{a, below[0]}, gathered{b, below[1]}
}

// batcher writes in the background what was written to it, for a peer that
// does not batch itself.
type batcher struct {
	gathered
	done chan struct{}

	mu     sync.Mutex // guards the fields below
	change sync.Cond
	kept   []byte
	err    error
}

func newBatcher(g net.Conn) *batcher {
	b := &batcher{gathered: g.(gathered), done: make(chan struct{})}
	b.change.L = &b.mu
	go b.loop()
	return b
}

func (b *batcher) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil && len(b.kept) > 256<<10 {
		b.change.Wait()
	}
	b.kept = append(b.kept, p...)
	b.change.Broadcast()
	return len(p), b.err
}

func (b *batcher) loop() {
	defer close(b.done)
	b.mu.Lock()
	defer b.mu.Unlock()
	var spare []byte
	for {
		for b.err == nil && len(b.kept) == 0 {
			b.change.Wait()
		}
		if b.err != nil {
			return
		}
		p := b.kept
		b.kept = spare[:0]
		b.change.Broadcast()
		b.mu.Unlock()
		_, err := b.gathered.Write(p)
		if err == nil {
			err = b.Flush()
		}
		spare = p
		b.mu.Lock()
		if b.err == nil {
			b.err = err
		}
	}
}

func (b *batcher) Close() error {
	b.mu.Lock()
	b.err = net.ErrClosed
	b.change.Broadcast()
	b.mu.Unlock()
	err := b.gathered.Close()
	<-b.done
	return err
}
