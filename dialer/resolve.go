package dialer

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// Resolver finds the addresses of a name. A [*net.Resolver] is one, [LookupDNS]
// makes one that asks a server of its own, and a type of the caller's may know
// names that no DNS does. network is "ip", "ip4" or "ip6". A name that does not
// exist is a [*net.DNSError] with IsNotFound. LookupNetIP has to heed its
// context, and to be safe for concurrent use.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

var _ Resolver = (*net.Resolver)(nil)

// Resolve looks names up here, and has Forward dial the addresses: where the
// proxy or the tunnel behind it knows other names, or none. Without it the far
// side resolves, as [HTTPConnect] and tunnels have it.
//
// Several addresses are tried as RFC 8305 has it, IPv6 and IPv4 in turn and at
// most 16: the next one 300 ms after the one before it, or at once if that has
// failed, until one connects or ctx ends. It is safe for concurrent use once its
// fields are set, and dials by Forward from several goroutines at once.
type Resolve struct {
	// Resolver finds the addresses. If nil, net.DefaultResolver does.
	Resolver Resolver
	// Allow reports whether an address of host may be dialed, also one that
	// was asked for as such. It must be safe for concurrent use. If nil, all
	// may.
	Allow func(host string, addr netip.Addr) bool
	// Forward dials the addresses. If nil, Direct.
	Forward Dialer
}

var _ Forwarder = (*Resolve)(nil)

const opResolve = "resolve"

// errNotAllowed is a refusal wherever errors of the system are understood.
var errNotAllowed = fmt.Errorf("field Allow lets none of the addresses be dialed: %w", syscall.EACCES)

// DialContext dials an address of the name that address has, or the address
// that it is. Its failure is an [*Error]: of [PhaseDNS] if no address was
// found, or none that Allow lets through (then it is syscall.EACCES); otherwise
// its cause has [Failures], with a member for each address. A Resolver that dials
// through this Resolve and needs a name for that is [ErrLoop].
func (d *Resolve) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	fail := func(phase Phase, err error) error {
		return &Error{Op: opResolve, Phase: phase, Addr: address, Err: contextError(ctx, err)}
	}
	host, port, err := net.SplitHostPort(address)
	if addr, notAddr := netip.ParseAddr(host); err == nil && notAddr == nil {
		if !d.allows(host, addr) {
			return nil, fail(PhaseDNS, errNotAllowed)
		}
		return forwardOrDirect(d.Forward).DialContext(ctx, network, address)
	}
	t, err := parseTarget(network, address)
	if err == nil && looping(ctx, d) {
		err = ErrLoop
	}
	if err != nil {
		return nil, fail(PhaseConfig, err)
	}
	addrs, err := d.resolve(ctx, network, t.host, address)
	if err != nil {
		return nil, fail(PhaseDNS, err)
	}
	return dialAddrs(ctx, network, address, addrs, always, func(ctx context.Context, addr netip.Addr) (net.Conn, error) {
		return forwardOrDirect(d.Forward).DialContext(ctx, network, net.JoinHostPort(addr.String(), port))
	})
}

func always(error) bool { return true }

// WithForward returns a copy of d with this Forward. It is an error if d has
// one already, which would be left out.
func (d *Resolve) WithForward(forward Dialer) (Dialer, error) {
	if d.Forward != nil {
		return nil, errForward
	}
	c := *d
	c.Forward = forward
	return &c, nil
}

func (d *Resolve) allows(host string, addr netip.Addr) bool {
	return d.Allow == nil || d.Allow(host, addr.Unmap().WithZone(""))
}

// resolve returns the addresses that may be dialed, at least one.
func (d *Resolve) resolve(ctx context.Context, network, host, address string) (addrs []netip.Addr, err error) {
	s := contextTrace(ctx).start(PhaseDNS, "", address)
	defer func() { s.done(err) }()
	resolver := d.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	addrs, err = lookup(enter(ctx, d), resolver, network, host)
	addrs = slices.DeleteFunc(addrs, func(addr netip.Addr) bool { return !d.allows(host, addr) })
	if err == nil && len(addrs) == 0 {
		err = errNotAllowed
	}
	return addrs, err
}
