package target

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// attemptDelay is how long one address is tried before the next one is tried
// beside it (RFC 8305, section 5).
const attemptDelay = 250 * time.Millisecond

type attempt struct {
	index int
	conn  net.Conn
	err   error
}

// dialFirst connects to the first of the addresses that answers. It begins to
// dial them in their order, the next one as soon as one has failed, or after
// attemptDelay: so a dead address costs little, and a live one gets no dials
// that nobody needs. The error is that of the first address. All attempts have
// ended when it returns.
func (p *Policy) dialFirst(ctx context.Context, addrs []netip.AddrPort) (net.Conn, error) {
	if len(addrs) == 1 {
		return p.dialAddr(ctx, "tcp", addrs[0].String())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attempts := make(chan attempt)
	started, pending := 0, 0
	timer := time.NewTimer(attemptDelay)
	defer timer.Stop()
	startNext := func() {
		if started == len(addrs) || ctx.Err() != nil {
			return
		}
		go func(index int) {
			conn, err := p.dialAddr(ctx, "tcp", addrs[index].String())
			attempts <- attempt{index, conn, err}
		}(started)
		started++
		pending++
		timer.Reset(attemptDelay)
	}
	startNext()
	errs := make([]error, len(addrs))
	for pending > 0 {
		select {
		case <-timer.C:
			startNext()
		case a := <-attempts:
			pending--
			if a.err == nil {
				cancel()
				closeLosers(attempts, pending)
				return a.conn, nil
			}
			errs[a.index] = a.err
			startNext()
		}
	}
	if errs[0] == nil {
		return nil, ctx.Err() // it ended before the first attempt
	}
	return nil, errs[0]
}

// closeLosers waits for the attempts that lost, and closes their connections.
func closeLosers(attempts <-chan attempt, pending int) {
	for range pending {
		if a := <-attempts; a.err == nil {
			a.conn.Close()
		}
	}
}
