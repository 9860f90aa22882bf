package main

import (
	"net"
	"sync"
)

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
	go b.run()
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

// run ends at the first error, which Close makes.
func (b *batcher) run() {
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
			err = b.Flush()
		}
		if err != nil {
			b.fail(err)
		}
	}
}

func (b *batcher) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.change.Broadcast()
}

// Close drops what was not sent, and waits for the writer.
func (b *batcher) Close() error {
	b.fail(net.ErrClosed)
	err := b.below.Close()
	<-b.done
	return err
}
