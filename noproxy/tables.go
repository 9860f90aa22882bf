package noproxy

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// addrTable holds the addresses of a list. IPv4-mapped addresses are IPv4 in it: httpproxy
// does not tell the two apart either.
type addrTable struct {
	networks []netip.Prefix    // in Rules sorted, and none within another
	onePort  map[addrPort]bool // single addresses with a port
}

type addrPort struct {
	addr netip.Addr
	port string
}

func (t *addrTable) contains(addr netip.Addr, port string) bool {
	i := sort.Search(len(t.networks), func(i int) bool { return addr.Less(t.networks[i].Addr()) })
	return i > 0 && t.networks[i-1].Contains(addr) || len(t.onePort) > 0 && t.onePort[addrPort{addr, port}]
}

func (t *addrTable) addNetwork(network netip.Prefix, port string) {
	if port == "" {
		t.networks = append(t.networks, network)
		return
	}
	t.onePort[addrPort{network.Addr(), port}] = true
}

// outerNetworks sorts networks, in place, and leaves out those within another one.
func outerNetworks(networks []netip.Prefix) []netip.Prefix {
	slices.SortFunc(networks, netip.Prefix.Compare) // the larger of two that begin alike comes first
	outer := networks[:0]
	for _, n := range networks {
		if end := len(outer) - 1; end < 0 || !outer[end].Overlaps(n) {
			outer = append(outer, n)
		}
	}
	return outer
}

// parseAddr is netip.ParseAddr without the zone, and with IPv4 for an IPv4-mapped address.
// Without a colon in s it tries only IPv4, by a function that does not allocate an error
// for a name.
func parseAddr(s string) (netip.Addr, bool) {
	if strings.IndexByte(s, ':') < 0 {
		return parseIPv4(s)
	}
	addr, err := netip.ParseAddr(s)
	return addr.WithZone("").Unmap(), err == nil
}

// parseIPv4 accepts what netip.ParseAddr accepts: no octet has a leading zero.
func parseIPv4(s string) (netip.Addr, bool) {
	var addr [4]byte
	octet, digits, dots := 0, 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			if digits > 0 && octet == 0 {
				return netip.Addr{}, false
			}
			octet = octet*10 + int(c-'0')
			digits++
			if octet > 255 {
				return netip.Addr{}, false
			}
			addr[dots] = byte(octet)
		case c == '.' && digits > 0 && dots < 3:
			octet, digits = 0, 0
			dots++
		default:
			return netip.Addr{}, false
		}
	}
	return netip.AddrFrom4(addr), dots == 3 && digits > 0
}

// hasZone reports whether an address has a zone. A host may have one. An item with
// one is a name.
func hasZone(addr string) bool { return strings.Contains(addr, "%") }

// parseCIDR is net.ParseCIDR, which takes more than netip.ParsePrefix does: /08, and a
// mapped prefix of 96 bits or more as one of IPv4.
func parseCIDR(s string) (netip.Prefix, bool) {
	if !strings.Contains(s, "/") {
		return netip.Prefix{}, false
	}
	_, network, err := net.ParseCIDR(s)
	if err != nil {
		return netip.Prefix{}, false
	}
	addr, _ := netip.AddrFromSlice(network.IP)
	bits, _ := network.Mask.Size()
	if addr.Is4In6() {
		bits -= 96
	}
	return netip.PrefixFrom(addr.Unmap(), bits), true
}

// lastAddr returns the last address of a network.
func lastAddr(network netip.Prefix) netip.Addr {
	b := network.Addr().As16()
	for i := 128 - network.Addr().BitLen() + network.Bits(); i < 128; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom16(b).Unmap()
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

// nameTable holds the names of a list. The value of a name is true if the name
// itself is covered too, and false if only the names below it are.
type nameTable struct {
	anyPort map[string]bool
	onePort map[namePort]bool
	lengths []int // the lengths of the names; sorted, each once
}

type namePort struct{ name, port string }

func (t *nameTable) addName(name, port string, apex bool) {
	if i, found := slices.BinarySearch(t.lengths, len(name)); !found {
		t.lengths = slices.Insert(t.lengths, i, len(name))
	}
	if port == "" {
		t.anyPort[name] = apex || t.anyPort[name]
		return
	}
	key := namePort{name, port}
	t.onePort[key] = apex || t.onePort[key]
}

// matchFold is matchName for a host in any case, with white space around it.
func (t *nameTable) matchFold(host, port string) bool {
	var buf [maxName]byte
	return matchName(t, appendLower(buf[:0], strings.TrimSpace(host)), port)
}

// matchName looks up the host itself and each part of it that follows a dot. It
// tries only the lengths of listed names, so a host of many dots does not cost
// more than the list has bytes.
//
// T is string or []byte because a map lookup with either does not allocate.
func matchName[T string | []byte](t *nameTable, host T, port string) bool {
	for _, length := range t.lengths {
		start := len(host) - length
		if start < 0 {
			return false
		}
		if start > 0 && host[start-1] != '.' {
			continue
		}
		found, apex := lookupName(t, host[start:], port)
		if found && (start > 0 || apex) {
			return true
		}
	}
	return false
}

func lookupName[T string | []byte](t *nameTable, name T, port string) (found, apex bool) {
	apex, found = t.anyPort[string(name)]
	if len(t.onePort) > 0 {
		a, ok := t.onePort[namePort{string(name), port}]
		found, apex = found || ok, apex || a
	}
	return found, apex
}

// maxName is the length of the longest name in DNS.
const maxName = 253

// appendLower appends the result of strings.ToLower(name) to buf, which is empty.
func appendLower(buf []byte, name string) []byte {
	if !isASCII(name) {
		return append(buf, strings.ToLower(name)...)
	}
	return lowerASCII(append(buf, name...))
}

// lowerASCII changes the upper-case ASCII letters in b, and returns b.
func lowerASCII(b []byte) []byte {
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return b
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// isPlain reports whether s is ASCII without upper-case letters, spaces and control
// characters, so that it can be compared without conversion.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < '!' || c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}
