package target

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/causewayproject/causeway/internal/race"
)

// attemptDelay is how long one address is tried before the next one is tried
// beside it (RFC 8305, section 5).
const attemptDelay = 250 * time.Millisecond

// dialFirst connects to the first of the addresses that answers. It begins to
// dial them in their order, the next one as soon as one has failed, or after
// attemptDelay: so a dead address costs little, and a live one gets no dials
// that nobody needs. The error is that of the first address. All attempts have
// ended when it returns.
func (p *Policy) dialFirst(ctx context.Context, addrs []netip.AddrPort) (net.Conn, error) {
	errs := make([]error, len(addrs))
	conn := race.Dial(ctx, len(addrs), func(int) time.Duration { return attemptDelay }, func(ctx context.Context, i int) race.Attempt {
		conn, err := p.dialAddr(ctx, "tcp", addrs[i].String())
		return race.Attempt{Conn: conn, Err: err}
	}, func(i int, err error) { errs[i] = err })
	if conn == nil {
		return nil, errs[0]
	}
	return conn, nil
}
