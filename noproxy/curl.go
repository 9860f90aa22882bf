package noproxy

import (
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// curlMatcher follows lib/noproxy.c, and what lib/urlapi.c and lib/url.c do to
// the host before it gets there.
func curlMatcher(list string) matcher {
	tokens := curlTokens(list)
	return func(t target) bool {
		host, ok := curlHost(t.host)
		switch {
		case !ok || list == "":
			return false
		case list == "*":
			return true
		}
		if addr, err := netip.ParseAddr(host); err == nil {
			return curlMatchIP(tokens, addr.WithZone(""))
		}
		return !strings.Contains(host, ":") && curlMatchName(tokens, host)
	}
}

// libidn2 is what curl converts a host with: it takes underscores.
var libidn2 = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false))

// curlHost returns the host as curl looks for it in the list, and false for one
// that curl refuses. "10.0.0." is 10.0.0.0, as 10.0.0 is.
func curlHost(host string) (string, bool) {
	if isASCII(host) {
		if n, ok := parseAton(strings.TrimSuffix(host, ".")); ok {
			return netip.AddrFrom4(n).String(), true
		}
		return strings.TrimSuffix(host, "."), host != "" && host != "." && !strings.HasSuffix(host, "..")
	}
	host, err := libidn2.ToASCII(host)
	host = strings.TrimSuffix(host, ".")
	return host, err == nil && !strings.Contains("."+host, "..")
}

// curlTokens splits a list where curl does: a blank that no comma follows ends
// the list.
func curlTokens(list string) []string {
	var tokens []string
	for list != "" {
		list = strings.TrimLeft(list, " \t")
		end := strings.IndexAny(list, " \t,")
		if end < 0 {
			end = len(list)
		}
		if end > 0 {
			tokens = append(tokens, list[:end])
		}
		list = strings.TrimLeft(list[end:], " \t")
		if !strings.HasPrefix(list, ",") {
			break
		}
		list = strings.TrimLeft(list, ",")
	}
	return tokens
}

func curlMatchName(tokens []string, name string) bool {
	for _, token := range tokens {
		token = strings.TrimPrefix(strings.TrimSuffix(token, "."), ".")
		if hasSuffixFold(name, token) && (len(name) == len(token) || name[len(name)-len(token)-1] == '.') {
			return true
		}
	}
	return false
}

func curlMatchIP(tokens []string, addr netip.Addr) bool {
	for _, token := range tokens {
		network, length, slash := strings.Cut(token, "/")
		n, err := netip.ParseAddr(network)
		if err != nil || n.Zone() != "" {
			continue
		}
		bits := n.BitLen()
		if slash {
			v, err := strconv.ParseUint(length, 10, 8)
			if err != nil || int(v) > n.BitLen() {
				continue
			}
			if v > 0 { // curl takes /0 for no length at all
				bits = int(v)
			}
		}
		if netip.PrefixFrom(n, bits).Contains(addr) {
			return true
		}
	}
	return false
}

// hasSuffixFold is strings.HasSuffix without regard to the case of ASCII.
func hasSuffixFold(s, suffix string) bool {
	if len(s) < len(suffix) {
		return false
	}
	s = s[len(s)-len(suffix):]
	for i := range len(s) {
		if lowerByte(s[i]) != lowerByte(suffix[i]) {
			return false
		}
	}
	return true
}

func lowerByte(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}
