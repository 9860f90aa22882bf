package noproxy

import (
	"net"
	"strings"

	"golang.org/x/net/idna"
)

// entry is one item of a list.
type entry struct {
	kind kind
	port string // "" is any port

	span span // for addresses

	name string // for a domain, without the leading "." or "*."
	apex bool   // for a domain: covers the name itself, besides those below it
}

// kind says what an entry covers.
type kind int

const (
	nothing    kind = iota
	everything      // *
	addresses       // an IP address or a CIDR
	domain          // a name
)

func parseEntry(item string) entry {
	item = strings.ToLower(strings.TrimSpace(item))
	if item == "*" {
		return entry{kind: everything}
	}
	if s, ok := parseCIDR(item); ok {
		return entry{kind: addresses, span: s}
	}
	host, port := item, ""
	if strings.Contains(item, ":") {
		// What does not split has no port, such as a bare IPv6 address.
		if h, p, err := net.SplitHostPort(item); err == nil {
			host, port = h, p
		}
	}
	if host == "" {
		return entry{kind: nothing}
	}
	if n, ok := parseNumber(host); ok && !hasZone(host) {
		return entry{kind: addresses, span: span{n, n}, port: port}
	}
	return domainEntry(host, port)
}

func domainEntry(name, port string) entry {
	if strings.HasPrefix(name, "*.") {
		name = name[1:]
	}
	name, below := strings.CutPrefix(name, ".")
	if !isASCII(name) {
		// httpproxy converts the name with a dot before it, so do we.
		name = strings.TrimPrefix(toASCII("."+name), ".")
	}
	return entry{kind: domain, name: name, apex: !below, port: port}
}

// toASCII converts an internationalised name to its ASCII form. What cannot be
// converted stays as it is: the list may have it in the same spelling.
func toASCII(name string) string {
	if isASCII(name) {
		return name
	}
	if a, err := idna.Lookup.ToASCII(name); err == nil {
		return a
	}
	return name
}
