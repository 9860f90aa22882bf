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

// specials are the ranges of addresses that a name must not lead to. They mean
// something else on each machine or network, and what listens there often trusts
// every client that can reach it. The first range that contains an address counts,
// so the narrow ones come first.
var specials = prefixes(
	// Metadata and credentials of clouds.
	"169.254.169.254/32", // AWS, Azure, Google and most others
	"169.254.170.0/24",   // AWS: ECS tasks, EKS Pod Identity
	"168.63.129.16/32",   // Azure WireServer
	"100.100.100.200/32", // Alibaba
	"192.0.0.192/32",     // Oracle, classic
	"fd00:ec2::/32",      // AWS
	"fd00:c1::/32",       // Oracle
	"fd00:42::42/128",    // Scaleway
	"fd20:ce::/32",       // Google
	"fe80::a9fe:a9fe/128",

	// The IANA special-purpose registries (RFC 6890).
	"0.0.0.0/8",
	"127.0.0.0/8",
	"169.254.0.0/16",
	"192.0.0.0/24",
	"224.0.0.0/4",
	"240.0.0.0/4", // 255.255.255.255 too
	"::/128",
	"::1/128",
	"fe80::/10",
	"fec0::/10", // site-local, RFC 3879
	"ff00::/8",

	// IPv4 in IPv6, at a place that is not fixed, or not in clear.
	"64:ff9b:1::/48", // RFC 8215
	"2001::/32",      // Teredo, RFC 4380
)

// embeddings are the prefixes after which an IPv6 address contains an IPv4 one.
// IPv4-mapped addresses are unmapped before.
var embeddings = prefixes(
	"::/96",           // IPv4-compatible, RFC 4291
	"::ffff:0:0:0/96", // IPv4-translated, RFC 2765
	"64:ff9b::/96",    // NAT64, RFC 6052
	"2002::/16",       // 6to4, RFC 3056
)

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// specialRange returns the range that makes an address special. If there is
// none, the Prefix is invalid, and its Bits are -1. The address must have no zone,
// and not be IPv4-mapped.
//
// If an IPv6 address contains a special IPv4 address, the range is that of the inner
// one, in IPv6: of 2002:7f00:1::1, which is 127.0.0.1 by 6to4, it is 2002:7f00::/24.
// So a pattern for all of 2002::/16 does not allow it.
func specialRange(addr netip.Addr) netip.Prefix {
	contains := func(p netip.Prefix) bool { return p.Contains(addr) }
	if i := slices.IndexFunc(specials, contains); i >= 0 {
		return specials[i]
	}
	i := slices.IndexFunc(embeddings, contains)
	if i < 0 {
		return netip.Prefix{}
	}
	outer := embeddings[i].Bits()
	bytes := addr.As16()
	inner := specialRange(netip.AddrFrom4([4]byte(bytes[outer/8:])))
	if !inner.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr, outer+inner.Bits()).Masked()
}
