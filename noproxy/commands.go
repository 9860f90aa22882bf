package noproxy

import (
	"bytes"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// curlMatcher follows curl's lib/noproxy.c, and what lib/urlapi.c and lib/url.c do
// to the host before.
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

// libidn2 converts a host as the library does that curl uses: it takes underscores.
var libidn2 = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false))

// curlHost returns the host in the form that curl compares, and false for a host
// that curl refuses. "10.0.0." is 10.0.0.0, and so is "10.0.0".
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

// curlTokens splits a list as curl does. A blank without a comma after it ends the
// list.
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
	return slices.ContainsFunc(tokens, func(token string) bool {
		token = strings.TrimPrefix(strings.TrimSuffix(token, "."), ".")
		return hasSuffixFold(name, token) && (len(name) == len(token) || name[len(name)-len(token)-1] == '.')
	})
}

func curlMatchIP(tokens []string, addr netip.Addr) bool {
	return slices.ContainsFunc(tokens, func(token string) bool {
		network, length, slash := strings.Cut(token, "/")
		n, err := netip.ParseAddr(network)
		if err != nil || n.Zone() != "" {
			return false
		}
		bits := n.BitLen()
		if slash {
			v, err := strconv.ParseUint(length, 10, 8)
			if err != nil || int(v) > n.BitLen() {
				return false
			}
			if v > 0 { // curl reads /0 as no length
				bits = int(v)
			}
		}
		return netip.PrefixFrom(n, bits).Contains(addr)
	})
}

// hasSuffixFold is strings.HasSuffix that ignores the case of ASCII letters.
func hasSuffixFold(s, suffix string) bool {
	return bytes.HasSuffix(lowerASCII([]byte(s)), lowerASCII([]byte(suffix)))
}

// wgetMatcher follows Wget's sepstring in src/init.c and sufmatch in src/host.c.
// Wget compares only text: it knows no addresses, networks, ports or asterisks.
func wgetMatcher(list string) matcher {
	var tokens []string
	if list != "" {
		for i, token := range strings.Split(list, ",") {
			if i > 0 {
				// Blanks before the first item and after each item stay.
				token = strings.TrimLeft(token, " \t\n\v\f\r")
			}
			tokens = append(tokens, token)
		}
	}
	return func(t target) bool {
		if hasZone(t.host) { // refused
			return false
		}
		host := toASCII(t.host)
		return slices.ContainsFunc(tokens, func(token string) bool { return wgetMatch(host, token) })
	}
}

func wgetMatch(host, token string) bool {
	if !hasSuffixFold(host, token) {
		return false
	}
	rest := host[:len(host)-len(token)]
	// By Wget's source an empty item covers the names that end in a dot.
	return rest == "" || rest[len(rest)-1] == '.' || strings.HasPrefix(token, ".")
}
