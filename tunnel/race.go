package tunnel

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// stagger is how long an address is tried before the next one is tried beside
// it (RFC 8305, section 5).
const stagger = 250 * time.Millisecond

type dialAttempt struct {
	index int
	conn  net.Conn
	err   error
}

// race connects to the first of the addresses that answers. It begins with
// them in their order, with the next one where one failed or took its time, so
// that a dead address costs little and a live one is not dialed for nothing.
// The error is the first address's. No attempt outlives it.
func (t *targets) race(ctx context.Context, addrs []netip.AddrPort) (net.Conn, error) {
	if len(addrs) == 1 {
		return t.dialAddr(ctx, "tcp", addrs[0].String())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attempts := make(chan dialAttempt)
	started, pending := 0, 0
	timer := time.NewTimer(stagger)
	defer timer.Stop()
	next := func() {
		if started == len(addrs) || ctx.Err() != nil {
			return
		}
		go t.try(ctx, started, addrs[started], attempts)
		started++
		pending++
		timer.Reset(stagger)
	}
	next()
	errs := make([]error, len(addrs))
	for pending > 0 {
		select {
		case <-timer.C:
			next()
		case a := <-attempts:
			pending--
			if a.err == nil {
				cancel()
				discard(attempts, pending)
				return a.conn, nil
			}
			errs[a.index] = a.err
			next()
		}
	}
	if errs[0] == nil {
		return nil, ctx.Err() // it ended before the first attempt
	}
	return nil, errs[0]
}

func (t *targets) try(ctx context.Context, index int, addr netip.AddrPort, attempts chan<- dialAttempt) {
	conn, err := t.dialAddr(ctx, "tcp", addr.String())
	attempts <- dialAttempt{index, conn, err}
}

// discard waits for the attempts that lost.
func discard(attempts <-chan dialAttempt, pending int) {
	for range pending {
		if a := <-attempts; a.err == nil {
			a.conn.Close()
		}
	}
}
