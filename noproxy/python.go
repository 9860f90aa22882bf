package noproxy

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// urllibMatcher follows proxy_bypass_environment for what urllib.request asks:
// the host and the port as they are written in the URL, brackets included.
func urllibMatcher(list string) matcher {
	bypass := proxyBypass(list)
	return func(t target) bool {
		host := t.host
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		if t.written != "" {
			host += ":" + t.written
		}
		return bypass(host)
	}
}

// proxyBypass is proxy_bypass_environment.
func proxyBypass(list string) func(host string) bool {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimFunc(name, isPythonSpace); name != "" {
			names = append(names, strings.ToLower(strings.TrimLeft(name, ".")))
		}
	}
	return func(host string) bool {
		if list == "*" {
			return true
		}
		host = strings.ToLower(host)
		bare := cutPort(host)
		for _, name := range names {
			if bare == name || host == name || strings.HasSuffix(bare, "."+name) || strings.HasSuffix(host, "."+name) {
				return true
			}
		}
		return false
	}
}

// cutPort is _splitport without the port. It takes the last group of an IPv6
// address without brackets for a port.
func cutPort(host string) string {
	colon := strings.LastIndexByte(host, ':')
	if colon < 0 || !isDigits(host[colon+1:]) {
		return host
	}
	return host[:colon]
}

// isPythonSpace is str.isspace.
func isPythonSpace(r rune) bool {
	return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f
}

// requestsMatcher follows should_bypass_proxies, which has a reading of its own
// and then also asks proxy_bypass_environment. It gets the URL of a prepared
// request, the host of which has been converted; the list is not.
func requestsMatcher(list string) matcher {
	var names []string
	for name := range strings.SplitSeq(strings.ReplaceAll(list, " ", ""), ",") {
		if name != "" {
			names = append(names, name)
		}
	}
	bypass := proxyBypass(list)
	return func(t target) bool {
		// The zone keeps its case and its escapes.
		host, zone, zoned := strings.Cut(t.host, "%")
		host, ok := requestsHost(host)
		if !ok {
			return false
		}
		if zoned {
			host += strings.ReplaceAll("%"+zone, "%", "%25")
		}
		if n, ok := parseAton(host); ok {
			return requestsMatchIPv4(names, host, n) || bypass(host)
		}
		full := host
		if port, err := strconv.Atoi(t.written); err == nil && port > 0 {
			full += ":" + strconv.Itoa(port)
		}
		for _, name := range names {
			name = strings.TrimLeft(name, ".")
			if host == name || full == name || strings.HasSuffix(host, "."+name) || strings.HasSuffix(full, "."+name) {
				return true
			}
		}
		return bypass(host)
	}
}

// requestsHost returns the host as a prepared request has it, and false for one
// that Requests refuses. Labels that are not ASCII are converted as they are,
// without the mapping of fullwidth letters and the like.
func requestsHost(host string) (string, bool) {
	labels := strings.Split(strings.ToLower(host), ".")
	for i, label := range labels {
		if isASCII(label) {
			continue
		}
		ascii, err := idna.Registration.ToASCII(label)
		if err != nil {
			return "", false
		}
		labels[i] = ascii
	}
	host = strings.Join(labels, ".")
	return host, !strings.HasPrefix(host, "*") && !strings.HasPrefix(host, ".")
}

func requestsMatchIPv4(names []string, host string, addr [4]byte) bool {
	for _, name := range names {
		if network, ok := requestsNetwork(name); ok {
			if network.Contains(netip.AddrFrom4(addr)) {
				return true
			}
		} else if host == name {
			return true
		}
	}
	return false
}

// requestsNetwork is is_valid_cidr, and the network.
func requestsNetwork(name string) (netip.Prefix, bool) {
	network, length, ok := strings.Cut(name, "/")
	if !ok {
		return netip.Prefix{}, false
	}
	// int() takes white space, a sign and leading zeros.
	bits, err := strconv.Atoi(strings.TrimFunc(length, isPythonSpace))
	if err != nil || bits < 1 || bits > 32 {
		return netip.Prefix{}, false
	}
	// inet_aton stops at white space.
	if i := strings.IndexAny(network, " \t\n\v\f\r"); i > 0 {
		network = network[:i]
	}
	addr, ok := parseAton(network)
	return netip.PrefixFrom(netip.AddrFrom4(addr), bits), ok
}
