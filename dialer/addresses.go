package dialer

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// attemptDelay is how long one address of a name is tried before the next one
// is tried beside it: that of net.Dialer, which RFC 8305, section 5, allows.
const attemptDelay = 300 * time.Millisecond

// maxAddrs is how many addresses of a name are tried: more than an honest one
// needs, and less than what a name server could have this process dial.
const maxAddrs = 16

// lookup returns the addresses of host that network can have, at least one.
func lookup(ctx context.Context, resolver Resolver, network, host string) ([]netip.Addr, error) {
	found, err := resolver.LookupNetIP(ctx, "ip"+network[len("tcp"):], host)
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, addr := range found {
		if addr = addr.Unmap(); !addr.IsValid() {
			return nil, errors.New("field Resolver returned an address that is none")
		}
		if network == "tcp4" && !addr.Is4() || network == "tcp6" && addr.Is4() {
			continue
		}
		addrs = append(addrs, addr)
	}
	if len(addrs) == 0 {
		return nil, &net.DNSError{Err: "no address of " + strconv.Quote(network), Name: host, IsNotFound: true}
	}
	return addrs, nil
}

// dialAddrs connects to one of the addresses of a name as RFC 8305 has it: the
// next one is dialed attemptDelay after the one before it, or at once if that
// has failed and retry says so. The first connection wins. The error has
// Failures, whose members are addresses in the order in which they are tried.
func dialAddrs(ctx context.Context, network, address string, addrs []netip.Addr, retry func(error) bool,
	dial func(context.Context, netip.Addr) (net.Conn, error),
) (net.Conn, error) {
	d := &failoverDial{
		Failover: &Failover{Retry: retry, CoolDown: -1, Hedge: attemptDelay},
		network:  network, address: address,
	}
	addrs = interleave(addrs)
	for i, addr := range addrs[:min(len(addrs), maxAddrs)] {
		d.Dialers = append(d.Dialers, Func(func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, addr) }))
		d.order = append(d.order, i)
	}
	if len(addrs) == 1 {
		return d.inTurn(ctx) // without a goroutine
	}
	return d.hedged(ctx)
}

// interleave returns the addresses with their families in turn, beginning with
// that of the first (RFC 8305, section 4).
func interleave(addrs []netip.Addr) []netip.Addr {
	var families [2][]netip.Addr
	for _, addr := range addrs {
		i := 0
		if addr.Is4() != addrs[0].Is4() {
			i = 1
		}
		families[i] = append(families[i], addr)
	}
	mixed := make([]netip.Addr, 0, len(addrs))
	for i := range addrs {
		for _, family := range families {
			if i < len(family) {
				mixed = append(mixed, family[i])
			}
		}
	}
	return mixed
}
