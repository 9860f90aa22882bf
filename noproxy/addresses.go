package noproxy

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// addrTable holds the addresses of a list.
type addrTable struct {
	v4, v6  []span            // sorted and disjoint in Rules
	onePort map[addrPort]bool // single addresses with a port
}

type addrPort struct {
	addr ipNumber
	port string
}

func (t *addrTable) contains(n ipNumber, port string) bool {
	spans := t.v6
	if n.is4() {
		spans = t.v4
	}
	return spansContain(spans, n) || len(t.onePort) > 0 && t.onePort[addrPort{n, port}]
}

func (t *addrTable) addSpan(s span, port string) {
	switch {
	case port != "":
		if t.onePort == nil {
			t.onePort = make(map[addrPort]bool)
		}
		t.onePort[addrPort{s.first, port}] = true
	case s.first.is4():
		t.v4 = append(t.v4, s)
	default:
		t.v6 = append(t.v6, s)
	}
}

// mergeSpans sorts spans, in place, and joins those that overlap. It does not join
// neighbours: the highest address has no next one.
func mergeSpans(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.first.hi, b.first.hi), cmp.Compare(a.first.lo, b.first.lo))
	})
	merged := spans[:0]
	for _, s := range spans {
		end := len(merged) - 1
		if end < 0 || merged[end].last.less(s.first) {
			merged = append(merged, s)
		} else if merged[end].last.less(s.last) {
			merged[end].last = s.last
		}
	}
	return merged
}

// spansContain reports whether n is in one of the spans.
func spansContain(spans []span, n ipNumber) bool {
	i := sort.Search(len(spans), func(i int) bool { return !spans[i].last.less(n) })
	return i < len(spans) && !n.less(spans[i].first)
}

// ipNumber is an IP address as a 128-bit integer. An IPv4 address has its
// IPv4-mapped value: httpproxy does not tell the two apart either.
type ipNumber struct{ hi, lo uint64 }

// mapped is the prefix ::ffff:0:0/96 of IPv4-mapped addresses, in ipNumber.lo.
const mapped = 0xffff << 32

// parseNumber is netip.ParseAddr without the zone. Without a colon in s it tries
// only IPv4, by a function that does not allocate an error for a name.
func parseNumber(s string) (ipNumber, bool) {
	if strings.IndexByte(s, ':') < 0 {
		return parseIPv4(s)
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return ipNumber{}, false
	}
	b := a.As16()
	return ipNumber{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}, true
}

// parseIPv4 accepts what netip.ParseAddr accepts: no octet has a leading zero.
func parseIPv4(s string) (ipNumber, bool) {
	var addr, octet uint64
	digits, dots := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			if digits > 0 && octet == 0 {
				return ipNumber{}, false
			}
			octet = octet*10 + uint64(c-'0')
			digits++
			if octet > 255 {
				return ipNumber{}, false
			}
		case c == '.' && digits > 0:
			addr = addr<<8 | octet
			octet, digits = 0, 0
			dots++
		default:
			return ipNumber{}, false
		}
	}
	return ipNumber{lo: mapped | addr<<8 | octet}, dots == 3 && digits > 0
}

func (n ipNumber) is4() bool { return n.hi == 0 && n.lo>>32 == mapped>>32 }

func (n ipNumber) isLoopback() bool {
	return n.is4() && byte(n.lo>>24) == 127 || n == ipNumber{lo: 1}
}

func (n ipNumber) less(m ipNumber) bool {
	return n.hi < m.hi || n.hi == m.hi && n.lo < m.lo
}

// hasZone reports whether an address has a zone. A host may have one. An item with
// one is a name.
func hasZone(addr string) bool { return strings.Contains(addr, "%") }

// span is a range of addresses of one family, both ends included.
type span struct{ first, last ipNumber }

// parseCIDR reads what net.ParseCIDR reads, which is more than netip.ParsePrefix
// does: it takes /08, and a mapped prefix of 96 bits or more is one of IPv4.
func parseCIDR(s string) (span, bool) {
	addr, length, ok := strings.Cut(s, "/")
	if !ok {
		return span{}, false
	}
	n, ok := parseNumber(addr)
	if !ok || hasZone(addr) {
		return span{}, false
	}
	size, err := strconv.ParseUint(length, 10, 8)
	if err != nil {
		return span{}, false
	}
	if !strings.Contains(addr, ":") {
		size += 96
	}
	if size > 128 {
		return span{}, false
	}
	// A shift by 64 or more gives zero.
	host := ipNumber{^uint64(0) >> size, ^uint64(0) >> (max(size, 64) - 64)}
	return span{
		first: ipNumber{n.hi &^ host.hi, n.lo &^ host.lo},
		last:  ipNumber{n.hi | host.hi, n.lo | host.lo},
	}, true
}

// parseAton reads an IPv4 address as C's inet_aton does: one to four numbers in
// decimal, octal (010) or hexadecimal (0x8). The last number fills the remaining
// bytes.
func parseAton(s string) (addr [4]byte, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return addr, false
	}
	var value uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(atonDigits(part))
		size := 8
		if i == len(parts)-1 {
			size = 8 * (4 - i)
		}
		if err != nil || n>>size != 0 {
			return addr, false
		}
		value = value<<size | n
	}
	binary.BigEndian.PutUint32(addr[:], uint32(value))
	return addr, true
}

// atonDigits returns the arguments of strconv.ParseUint for a number in C.
func atonDigits(s string) (digits string, base, bits int) {
	switch {
	case len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X'):
		return s[2:], 16, 32
	case len(s) > 1 && s[0] == '0':
		return s[1:], 8, 32
	}
	return s, 10, 32
}
