package dialer

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/causewayproject/causeway/internal/ended"
)

// Resolver finds the addresses of a name. A [*net.Resolver] is one. With a Dial of its
// own it asks a DNS server through a Dialer: see the example of [Resolve].
type Resolver interface {
	// LookupNetIP returns the addresses of host. network is "ip", "ip4" or "ip6". For a
	// name that does not exist it returns a [*net.DNSError] with IsNotFound. It must
	// return when ctx ends, and be safe for concurrent use.
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

var _ Resolver = (*net.Resolver)(nil)

// Resolve looks names up in this process, and dials their addresses with Forward. Use
// it in front of a proxy or a tunnel that knows other names, or none. Without Resolve
// the proxy looks names up.
//
// Several addresses are tried as RFC 8305 says, IPv6 and IPv4 in turn and at most 16:
// the next one 300 ms after the one before it, or at once if that has failed, until
// one connects or ctx ends. For a SOCKS5 proxy use SOCKS5.Resolver instead: it stops
// when the proxy itself fails, and does not send a refused password 16 times.
//
// A Resolve is safe for concurrent use once its fields are set. It calls Forward from
// several goroutines at once. The zero Resolve dials directly.
type Resolve struct {
	// Resolver finds the addresses. If nil, it is net.DefaultResolver.
	Resolver Resolver
	// Forward dials the addresses. If nil, it is Direct{}.
	Forward Dialer
}

var _ Forwarder = (*Resolve)(nil)

const opResolve = "resolve"

// DialContext looks up the name in address, a host:port, and dials its addresses. An
// address instead of a name is dialed at once; the error is then Forward's.
//
// Otherwise the error is an [*Error]. If no address was found, it is one of [PhaseDNS].
// If the dials failed, errors.As finds [Failures] in it, with a member for each
// address. If the Resolver dials a name by this Resolve, the cause is [ErrLoop].
func (d *Resolve) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	fail := func(phase Phase, err error) error {
		return &Error{Op: opResolve, Phase: phase, Addr: address, Err: ended.Error(ctx, err)}
	}
	host, port, err := net.SplitHostPort(address)
	if _, notAddr := netip.ParseAddr(host); err == nil && notAddr == nil {
		return forwardOrDirect(d.Forward).DialContext(ctx, network, address)
	}
	t, err := parseTarget(network, address)
	if err == nil && isLooping(ctx, d) {
		err = ErrLoop
	}
	if err != nil {
		return nil, fail(PhaseConfig, err)
	}
	addrs, err := d.resolveName(ctx, network, t.host, address)
	if err != nil {
		return nil, fail(PhaseDNS, err)
	}
	return dialAddrs(ctx, network, address, addrs, func(error) bool { return true }, func(ctx context.Context, addr netip.Addr) (net.Conn, error) {
		return forwardOrDirect(d.Forward).DialContext(ctx, network, net.JoinHostPort(addr.String(), port))
	})
}

// WithForward returns a copy of d with this Forward. It returns an error if d has one
// already, which would be ignored.
func (d *Resolve) WithForward(forward Dialer) (Dialer, error) {
	c := *d
	return withForward(&c, &c.Forward, forward)
}

// resolveName returns the addresses of host, at least one.
func (d *Resolve) resolveName(ctx context.Context, network, host, address string) (addrs []netip.Addr, err error) {
	s := contextTrace(ctx).startPhase(PhaseDNS, "", address)
	defer func() { s.endPhase(err) }()
	return lookupAddrs(withOuterDial(ctx, d), cmp.Or[Resolver](d.Resolver, net.DefaultResolver), network, host)
}

// attemptDelay is how long one address of a name is tried before the next one is tried
// too. It is net.Dialer's, and within what RFC 8305, section 5, allows.
const attemptDelay = 300 * time.Millisecond

// maxAddrs is how many addresses of a name are tried. Honest names have fewer. A
// hostile name server must not make this process dial thousands.
const maxAddrs = 16

// lookupAddrs returns the addresses of host that network allows, at least one.
func lookupAddrs(ctx context.Context, resolver Resolver, network, host string) ([]netip.Addr, error) {
	found, err := resolver.LookupNetIP(ctx, "ip"+network[len("tcp"):], host)
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, addr := range found {
		if addr = addr.Unmap(); !addr.IsValid() {
			return nil, errors.New("field Resolver returned the zero netip.Addr")
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

// dialAddrs connects to one of the addresses of a name as RFC 8305 says. The next
// address is dialed attemptDelay after the one before it, or at once if that has
// failed and retry returns true. The first connection wins. The error has Failures,
// whose members are the addresses in the order in which they are tried.
func dialAddrs(ctx context.Context, network, address string, addrs []netip.Addr, retry func(error) bool,
	dial func(context.Context, netip.Addr) (net.Conn, error),
) (net.Conn, error) {
	d := &failoverDial{
		Failover: &Failover{Retry: retry, CoolDown: -1, Hedge: attemptDelay},
		network:  network, address: address,
	}
	addrs = interleaveFamilies(addrs)
	for i, addr := range addrs[:min(len(addrs), maxAddrs)] {
		d.Dialers = append(d.Dialers, Func(func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, addr) }))
		d.order = append(d.order, i)
	}
	return d.dial(ctx)
}

// interleaveFamilies returns the addresses with IPv6 and IPv4 in turn, beginning with
// the family of the first (RFC 8305, section 4).
func interleaveFamilies(addrs []netip.Addr) []netip.Addr {
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
