package noproxy

import (
	"math/bits"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// rubyItem is an item of a list as URI::Generic.use_proxy? scans it.
type rubyItem struct {
	host    string
	port    int // -1 is any
	network netip.Prefix
}

// rubyMatcher follows URI::Generic#find_proxy and use_proxy?. The scan knows
// neither brackets nor IPv6: it makes three items of 2001:db8::1, and the last
// of them, 1, covers every IPv4 address that ends in .1.
func rubyMatcher(list string) matcher {
	items := rubyItems(list)
	return func(t target) bool {
		if !isASCII(t.host) || hasZone(t.host) { // refused
			return false
		}
		host := strings.ToLower(t.host)
		addr := rubyAddr(host)
		if addr.Is4() && addr.As4()[0] == 127 || host == "localhost" || addr == netip.IPv6Loopback() {
			return true
		}
		port, err := strconv.Atoi(t.port)
		if err != nil {
			port = -2
		}
		for _, item := range items {
			if (item.port < 0 || item.port == port) && item.match(host, addr) {
				return true
			}
		}
		return false
	}
}

func (item rubyItem) match(host string, addr netip.Addr) bool {
	name := item.host
	if !strings.HasPrefix(name, ".") {
		host, name = "."+host, "."+name
	}
	return strings.HasSuffix(host, name) || item.network.Contains(addr)
}

// rubyScan is the one of use_proxy?; \s of Ruby has \v.
var rubyScan = regexp.MustCompile(`([^:,\s\v]+)(?::([0-9]+))?`)

func rubyItems(list string) []rubyItem {
	var items []rubyItem
	for _, m := range rubyScan.FindAllStringSubmatch(list, -1) {
		item := rubyItem{host: strings.ToLower(m[1]), port: -1, network: rubyNetwork(m[1])}
		if m[2] != "" {
			port, err := strconv.Atoi(m[2])
			if err != nil {
				continue // larger than any port
			}
			item.port = port
		}
		items = append(items, item)
	}
	return items
}

// rubyAddr is what IPSocket.getaddress makes of an address.
func rubyAddr(host string) netip.Addr {
	if addr, ok := parseAton(host); ok {
		return netip.AddrFrom4(addr)
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

// rubyNetwork is IPAddr.new. It takes a mask in place of a length, and no
// leading zeros. The zero Prefix has no addresses.
func rubyNetwork(item string) netip.Prefix {
	host, mask, slash := strings.Cut(item, "/")
	addr, err := netip.ParseAddr(host)
	if err != nil || !addr.Is4() {
		return netip.Prefix{}
	}
	if !slash {
		return netip.PrefixFrom(addr, 32)
	}
	if m, ok := parseIPv4(mask); ok {
		ones := bits.OnesCount32(uint32(m.lo))
		if bits.LeadingZeros32(^uint32(m.lo)) != ones {
			return netip.Prefix{}
		}
		return netip.PrefixFrom(addr, ones)
	}
	length, err := strconv.ParseUint(mask, 10, 8)
	if err != nil || length > 32 || len(mask) > 1 && mask[0] == '0' {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr, int(length))
}
