// Package target decides what an agent may dial, and dials it. The rules are in
// the documentation of tunnel.Targets.
package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Resolver is tunnel.Resolver.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// DialFunc is the type of net.Dialer.DialContext.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Config has the fields of tunnel.Targets, with the same zero values.
type Config struct {
	Allow    []string
	Aliases  map[string]string
	Resolver Resolver
	Dial     DialFunc
	Timeout  time.Duration
}

const (
	defaultTarget  = "kubernetes.default.svc:443"
	defaultTimeout = 10 * time.Second
)

// Policy is a compiled Config. It never changes, and is safe for concurrent use.
type Policy struct {
	patterns []pattern
	aliases  map[endpoint]alias
	resolver Resolver
	dialAddr DialFunc
	timeout  time.Duration
}

// alias is what is dialed in place of another target.
type alias struct {
	to    endpoint
	host  string       // of to, for the resolver
	addrs []netip.Addr // if there are any, they are dialed, and host is not resolved
}

// Compile checks the Config. The error names the field and the entry.
func (c Config) Compile() (*Policy, error) {
	p := &Policy{
		aliases:  make(map[endpoint]alias, len(c.Aliases)),
		resolver: cmp.Or[Resolver](c.Resolver, net.DefaultResolver),
		dialAddr: c.Dial,
		timeout:  cmp.Or(c.Timeout, defaultTimeout),
	}
	if p.dialAddr == nil {
		p.dialAddr = new(net.Dialer).DialContext
	}
	if c.Timeout < 0 {
		return nil, fmt.Errorf("field Timeout is negative: %v", c.Timeout)
	}
	if len(c.Allow) == 0 {
		c.Allow = []string{defaultTarget}
	}
	for _, text := range c.Allow {
		parsed, err := parsePattern(text)
		if err != nil {
			return nil, fmt.Errorf("field Allow, entry %q: %w", text, err)
		}
		p.patterns = append(p.patterns, parsed)
	}
	for _, from := range slices.Sorted(maps.Keys(c.Aliases)) {
		if err := p.addAlias(from, c.Aliases[from]); err != nil {
			return nil, fmt.Errorf("field Aliases, entry %q: %w", from, err)
		}
	}
	return p, nil
}

func (p *Policy) addAlias(from, to string) error {
	key, _, err := parseEndpoint(from)
	if err != nil {
		return err
	}
	if _, ok := p.aliases[key]; ok {
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
	p.aliases[key] = a
	return nil
}

// allowsAddr reports whether an address may be dialed. byName says that it is
// the address of a name that is allowed.
//
// A network pattern allows a special address only if it is not wider than the special
// range, that is, if its prefix is at least as long. For an ordinary address the range
// is invalid and its Bits are -1, so that each pattern that matches will do.
func (p *Policy) allowsAddr(a netip.AddrPort, byName bool) bool {
	special := specialRange(a.Addr())
	if byName && !special.IsValid() {
		return true
	}
	return slices.ContainsFunc(p.patterns, func(pat pattern) bool {
		return pat.network.Contains(a.Addr()) && pat.ports.has(a.Port()) && pat.network.Bits() >= special.Bits()
	})
}
