package tunnel

import (
	"net/netip"
	"slices"
)

// specials are the ranges of addresses that a name must not lead to: there is
// something else on each machine or network, and often something that trusts
// whoever can reach it. The first that holds an address counts, so that the
// narrow ones come first.
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

	// IPv4 in IPv6 where its place is not fixed or it is not in clear.
	"64:ff9b:1::/48", // RFC 8215
	"2001::/32",      // Teredo, RFC 4380
)

// embeddings are the prefixes after which an IPv6 address holds an IPv4 one.
// An IPv4-mapped address never gets here as such.
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

// specialRange returns the range because of which an address is special, or an
// invalid Prefix, whose Bits are -1. The address has no zone and is not
// IPv4-mapped.
func specialRange(addr netip.Addr) netip.Prefix {
	holds := func(p netip.Prefix) bool { return p.Contains(addr) }
	if i := slices.IndexFunc(specials, holds); i >= 0 {
		return specials[i]
	}
	i := slices.IndexFunc(embeddings, holds)
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
