package noproxy

import "strings"

// Rules is a compiled no_proxy list. It never changes, so any number of
// goroutines may use it at once.
//
// A nil *Rules and the zero Rules stand for the empty list: they bypass the
// proxy for localhost and for loopback addresses only.
type Rules struct {
	list string // as given; most keys of names are parts of it
	// special is set if there is a lone "*" or an extension. Bypass without
	// either pays for one question.
	special bool
	addrs   addrTable
	names   nameTable
	ext     *extension // nil without Options
}

// Parse compiles a no_proxy list. As in Go's httpproxy nothing is an error: an
// item that makes no sense is a name that no host has, or covers nothing.
// [Options.Parse] reports such items, and reads others that this does not.
//
// The Rules keep list in memory.
func Parse(list string) *Rules {
	r := &Rules{list: list}
	var addrs addrBuilder
	for item := range strings.SplitSeq(list, ",") {
		switch e := parseEntry(item); e.kind {
		case everything:
			return &Rules{list: list, special: true}
		case addresses:
			addrs.add(e.span, e.port)
		case domain:
			r.names.add(e.name, e.port, e.apex)
		}
	}
	r.addrs = addrs.table()
	return r
}

// String returns the list as it was given to [Parse], credentials included if
// someone put a URL with them into it.
func (r *Rules) String() string {
	if r == nil {
		return ""
	}
	return r.list
}

// Bypass reports whether a connection to host and port goes around the proxy.
// It resolves no names.
//
// host is what [net/url.URL.Hostname] returns: without port and brackets, an
// IPv6 address possibly with a zone. port is a decimal number; it is compared
// as a string, and "" matches only items without a port. The verdict is that
// of httpproxy's ProxyFunc for a URL with this host and port. To that end
// Bypass brings the host into the form that httpproxy compares:
//
//   - A host that is not ASCII goes through idna.Lookup.ToASCII, and stays as
//     it is if that fails.
//   - An IPv4-mapped IPv6 address is the IPv4 address. A zone is dropped.
//   - The case of a name and white space around it do not count. But
//     "localhost" is recognised only like this.
//   - A dot at the end of a name counts.
//
// There is one deliberate difference. A host with a bracket in it is a name
// like any other here; httpproxy fails to split it from the port and takes that
// for permission to connect directly.
//
// Bypass does not allocate, except for a host that is not ASCII, a name in
// upper case longer than 253 bytes, and a host with a colon that is not an IPv6
// address.
func (r *Rules) Bypass(host, port string) bool {
	if r == nil {
		r = &Rules{}
	}
	plain := isPlain(host)
	if !plain {
		host = toASCII(host)
	}
	if r.special || host == "localhost" {
		return r.bypassSpecial(host, port)
	}
	if n, ok := parseNumber(host); ok {
		return n.isLoopback() || r.addrs.match(n, port)
	}
	if plain {
		return matchName(&r.names, host, port)
	}
	return r.names.matchFold(host, port)
}

// bypassSpecial is apart from Bypass, whose common path it would slow down.
//
//go:noinline
func (r *Rules) bypassSpecial(host, port string) bool {
	return r.ext == nil || r.ext.bypass(r, host, port)
}
