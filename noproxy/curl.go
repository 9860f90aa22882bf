package noproxy

import (
	"net/netip"
	"strconv"
	"strings"
)

// curlMatcher follows lib/noproxy.c, and what lib/urlapi.c and lib/url.c do to
// the host before it gets there.
func curlMatcher(list string) matcher {
	tokens := curlTokens(list)
	return func(t target) bool {
		if t.host == "" || list == "" {
			return false
		}
		if list == "*" {
			return true
		}
		if strings.Contains(t.host, ":") {
			addr, err := netip.ParseAddr(t.host)
			return err == nil && curlMatchIP(tokens, addr.WithZone(""))
		}
		name := toASCII(t.host)
		if n, ok := parseAton(name); ok {
			name = netip.AddrFrom4(n).String()
		}
		name = strings.TrimSuffix(name, ".")
		if addr, err := netip.ParseAddr(name); err == nil {
			return curlMatchIP(tokens, addr)
		}
		return curlMatchName(tokens, strings.TrimSuffix(name, "."))
	}
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
