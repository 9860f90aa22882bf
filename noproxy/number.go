package noproxy

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
)

// number is an IP address as a 128-bit integer. An IPv4 address has its
// IPv4-mapped form, which is how httpproxy tells them apart: by value only.
type number struct{ hi, lo uint64 }

// mapped is the prefix ::ffff:0:0/96 of IPv4-mapped addresses, as number.lo.
const mapped = 0xffff << 32

// parseNumber is netip.ParseAddr without the zone. An IPv6 address has a colon
// and an IPv4 address has none, so a name costs no attempt and no error value.
func parseNumber(s string) (number, bool) {
	if strings.IndexByte(s, ':') < 0 {
		return parseIPv4(s)
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return number{}, false
	}
	b := a.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}, true
}

// parseIPv4 accepts what netip.ParseAddr accepts: an octet has no leading zero.
func parseIPv4(s string) (number, bool) {
	var addr, octet uint64
	digits, dots := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			if digits > 0 && octet == 0 {
				return number{}, false
			}
			octet = octet*10 + uint64(c-'0')
			digits++
			if octet > 255 {
				return number{}, false
			}
		case c == '.' && digits > 0:
			addr = addr<<8 | octet
			octet, digits = 0, 0
			dots++
		default:
			return number{}, false
		}
	}
	return number{lo: mapped | addr<<8 | octet}, dots == 3 && digits > 0
}

func (n number) is4() bool { return n.hi == 0 && n.lo>>32 == mapped>>32 }

func (n number) isLoopback() bool {
	return n.is4() && byte(n.lo>>24) == 127 || n == number{lo: 1}
}

func (n number) less(m number) bool {
	return n.hi < m.hi || n.hi == m.hi && n.lo < m.lo
}

// hasZone reports whether an address ends in a zone. A host may have one; in a
// list it makes a name of the address.
func hasZone(addr string) bool { return strings.Contains(addr, "%") }

// span is a range of addresses of one family, both ends included.
type span struct{ first, last number }

// parseCIDR is net.ParseCIDR, which takes more than netip.ParsePrefix: /08 is
// fine, and a mapped prefix of 96 bits or more is one of IPv4.
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
	host := number{^uint64(0) >> size, ^uint64(0) >> (max(size, 64) - 64)}
	return span{
		first: number{n.hi &^ host.hi, n.lo &^ host.lo},
		last:  number{n.hi | host.hi, n.lo | host.lo},
	}, true
}
