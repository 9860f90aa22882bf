package tunnel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Resolver finds the addresses of a name. A [*net.Resolver] is one, and so is
// what dialer.LookupDNS returns. It has to heed its context, and to be safe for
// concurrent use.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

var _ Resolver = (*net.Resolver)(nil)

// Targets say what an agent dials, and how. The zero value allows
// kubernetes.default.svc:443 and nothing else.
//
// A target is checked after its name was resolved, and the address that was
// checked is the one that is dialed: a name that changes its mind between the
// two has no say. An address is dialed if
//
//   - a network pattern holds it, or
//   - a name pattern holds the name that was asked for, and the address is not
//     a special one: loopback, unspecified, link-local, multicast, broadcast
//     and reserved ones, cloud metadata services, and those again in the IPv6
//     forms that embed an IPv4 address (NAT64, 6to4 and their like).
//
// A network pattern allows special addresses if it is no wider than their
// range, so that it was written for them: 127.0.0.0/8 and 127.0.0.1 allow
// loopback, 0.0.0.0/0 does not; 169.254.0.0/16 allows link-local addresses, and
// the metadata service among them takes a pattern of its own.
//
// Targets are not written to; an [Agent] reads them once.
type Targets struct {
	// Allow are patterns of host:port. If empty, "kubernetes.default.svc:443".
	//
	//	kubernetes.default.svc:443  the name; case and a final dot don't count
	//	*.svc:443                   all names below svc, not svc itself
	//	*:443                       all names, and no address that was asked for as one
	//	10.0.0.1:443                the address
	//	10.0.0.0/8:10250            the addresses of the network
	//	[2001:db8::1]:443           the address
	//	[2001:db8::/32]:443         the addresses of the network
	//	10.0.0.1:1-1024             the address, on these ports
	//	10.0.0.1:*                  the address, on all ports
	//
	// An internationalised name is as good as its ASCII form. A name is
	// compared as it is asked for: one that the pod's search list completes
	// is not the completed one. Names without a pattern are looked up where
	// a network pattern has the port, and not at all otherwise.
	Allow []string
	// Aliases are addresses that are dialed instead of a target, such as
	// "10.96.0.1:443" for "kubernetes.default.svc:443". They need no pattern
	// in Allow. An address, or localhost, is dialed as it is written here,
	// for an agent outside of a pod; another name is resolved, and must not
	// lead to a special address. There are no aliases of aliases. May be nil.
	Aliases map[string]string
	// Resolver looks names up. If nil, net.DefaultResolver.
	Resolver Resolver
	// Dial connects to an address, which is never a name. It has to heed its
	// context. If nil, a net.Dialer.
	Dial DialFunc
	// Timeout is for one target, its name's resolution and all its addresses
	// together. If zero, 10 seconds.
	Timeout time.Duration
}

const (
	defaultTarget        = "kubernetes.default.svc:443"
	defaultTargetTimeout = 10 * time.Second
)

func (t *Targets) allow() []string {
	if len(t.Allow) == 0 {
		return []string{defaultTarget}
	}
	return t.Allow
}

func (t *Targets) resolver() Resolver {
	if t.Resolver == nil {
		return net.DefaultResolver
	}
	return t.Resolver
}

func (t *Targets) dialer() DialFunc {
	if t.Dial == nil {
		return new(net.Dialer).DialContext
	}
	return t.Dial
}

func (t *Targets) timeout() time.Duration {
	if t.Timeout == 0 {
		return defaultTargetTimeout
	}
	return t.Timeout
}

// targets are compiled Targets. They never change, and are safe for concurrent
// use.
type targets struct {
	patterns []pattern
	aliases  map[endpoint]alias
	resolver Resolver
	dialAddr DialFunc
	timeout  time.Duration
}

// alias is what is dialed instead: addrs if there are any, else what the name
// of to resolves to.
type alias struct {
	to    endpoint
	host  string
	addrs []netip.Addr
}

// compile checks t. The *Error has CodeConfig, and names the field and entry.
func (t *Targets) compile() (*targets, error) {
	c := &targets{
		aliases:  make(map[endpoint]alias, len(t.Aliases)),
		resolver: t.resolver(),
		dialAddr: t.dialer(),
		timeout:  t.timeout(),
	}
	if t.Timeout < 0 {
		return nil, configError("field Timeout is negative: %v", t.Timeout)
	}
	for _, text := range t.allow() {
		p, err := parsePattern(text)
		if err != nil {
			return nil, configError("field Allow, entry %q: %w", text, err)
		}
		c.patterns = append(c.patterns, p)
	}
	for _, from := range slices.Sorted(maps.Keys(t.Aliases)) {
		if err := c.addAlias(from, t.Aliases[from]); err != nil {
			return nil, configError("field Aliases, entry %q: %w", from, err)
		}
	}
	return c, nil
}

func (t *targets) addAlias(from, to string) error {
	key, _, err := parseEndpoint(from)
	if err != nil {
		return err
	}
	if _, ok := t.aliases[key]; ok {
		return errors.New("the target has two aliases, spelled differently")
	}
	var a alias
	if a.to, a.host, err = parseEndpoint(to); err != nil {
		return fmt.Errorf("%q: %w", to, err)
	}
	switch {
	case a.to.addr.IsValid():
		a.addrs = []netip.Addr{a.to.addr}
	case a.to.name == localhost:
		a.addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	t.aliases[key] = a
	return nil
}

// named reports whether a name pattern holds e.
func (t *targets) named(e endpoint) bool {
	return slices.ContainsFunc(t.patterns, func(p pattern) bool { return p.hasName(e) })
}

// anyNetwork reports whether an address could be allowed on the port.
func (t *targets) anyNetwork(port uint16) bool {
	return slices.ContainsFunc(t.patterns, func(p pattern) bool { return p.network.IsValid() && p.ports.has(port) })
}

// permits reports whether an address may be dialed. named says that the name
// which it is the address of is allowed.
func (t *targets) permits(a netip.AddrPort, named bool) bool {
	special := specialRange(a.Addr())
	if named && !special.IsValid() {
		return true
	}
	return slices.ContainsFunc(t.patterns, func(p pattern) bool {
		return p.hasAddr(a) && p.network.Bits() >= special.Bits()
	})
}
