package noproxy_test

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

var hostPattern = regexp.MustCompile(`^([a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?$`)

// isHost reports whether there can be such a host, and such a port.
func isHost(q question) bool {
	if n, err := strconv.ParseUint(q.port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != q.port {
		return false
	}
	if a, err := netip.ParseAddr(q.host); err == nil {
		return a.IsValid()
	}
	host := strings.ToLower(q.host)
	if a, err := idna.Lookup.ToASCII(host); err == nil {
		host = a
	}
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	return len(host) <= 253 && hostPattern.MatchString(host) && strings.Trim(last, "0123456789") != ""
}

// at returns a host that a valid item covers, and the item's port if it has one.
func (g generator) at(item string) question {
	host, port := item, ""
	if h, p, err := net.SplitHostPort(item); err == nil {
		host, port = h, p
	}
	if _, network, err := net.ParseCIDR(host); err == nil {
		return question{network.IP.String(), port}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return question{a.String(), port}
	}
	host = strings.TrimPrefix(host, "*")
	switch {
	case host == "":
		return question{"example.com", port}
	case host == ".":
		return question{"example.", port}
	case host[0] == '.':
		return question{"a" + host, port}
	}
	return question{host, port}
}
