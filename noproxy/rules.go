package noproxy

import (
	"net"
	"slices"
	"strings"
	"unicode"
)

// Rules is a compiled no_proxy list. It never changes, so it is safe for concurrent
// use.
//
// A nil *Rules and the zero Rules stand for the empty list: only localhost and
// loopback addresses bypass the proxy.
type Rules struct {
	list string // as given; most keys of names share its memory
	// slowPath is set if the list has the item "*", and for Rules with Options. It
	// keeps their cost out of the other Rules' Bypass.
	slowPath  bool
	addrs     addrTable
	names     nameTable
	extension *extension // nil without Options
}

// Parse compiles a no_proxy list as Go's httpproxy reads it. Nothing is an error: an
// item that is not valid covers nothing, or a name that no host has. [Options.Parse]
// reports such items, and can read items that Parse does not.
//
// The result is not nil. It keeps list in memory.
func Parse(list string) *Rules {
	r := &Rules{list: list}
	var addrs addrBuilder
	for item := range strings.SplitSeq(list, ",") {
		switch e := parseEntry(item); e.kind {
		case everything:
			return &Rules{list: list, slowPath: true}
		case addresses:
			addrs.addSpan(e.span, e.port)
		case domain:
			r.names.addName(e.name, e.port, e.apex)
		}
	}
	r.addrs = addrs.build()
	return r
}

// String returns the list that was passed to [Parse]. It hides nothing: if the list
// has a URL with credentials in it, so has the result.
func (r *Rules) String() string {
	if r == nil {
		return ""
	}
	return r.list
}

// Bypass reports whether a connection to host and port goes around the proxy. It
// resolves no names.
//
// host is what [net/url.URL.Hostname] returns: a name or an address, without port
// and brackets. An IPv6 address may have a zone. port is a decimal number. It is
// compared as a string, and "" matches only items without a port.
//
// The verdict is that of httpproxy's ProxyFunc for a URL with this host and port.
// Bypass compares the host as httpproxy does:
//
//   - A host that is not ASCII is converted by idna.Lookup.ToASCII. If that fails,
//     it is compared unchanged.
//   - An IPv4-mapped IPv6 address is the IPv4 address. A zone is dropped.
//   - The case of a name, and white space around it, are ignored. But "localhost"
//     is recognised only in lower case and without white space.
//   - A dot at the end of a name is significant.
//
// There is one intended difference. Here a host with a bracket in it is a name.
// httpproxy can't split it from the port, and connects directly.
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
	if r.slowPath || host == "localhost" {
		return r.bypassSlowPath(host, port)
	}
	if n, ok := parseNumber(host); ok {
		return n.isLoopback() || r.addrs.contains(n, port)
	}
	if plain {
		return matchName(&r.names, host, port)
	}
	return r.names.matchFold(host, port)
}

// bypassSlowPath is not inlined, since that would slow down Bypass's common path.
//
//go:noinline
func (r *Rules) bypassSlowPath(host, port string) bool {
	return r.extension == nil || r.extension.bypass(r, host, port)
}

// Options turns on what Go's httpproxy does not do. Each field is one extension and
// off by default. The zero Options read a list as [Parse] does.
//
// With an extension this process reads a list differently from net/http, and so
// from other programs written in Go. [Lint] reports how other programs read it.
type Options struct {
	// Strict makes Parse return an error for each item that can match no host:
	// a URL, a network with an impossible length, an asterisk inside a word, an
	// empty item. If false, such an item is kept and covers nothing.
	Strict bool

	// FoldTrailingDot ignores a dot at the end of a name or an address, in the list
	// and in the host, as curl and undici do. If false, "example.com." and
	// "example.com" differ.
	FoldTrailingDot bool

	// BracketsWithoutPort reads [2001:db8::1] as the address on every port. If
	// false, such an item covers nothing.
	BracketsWithoutPort bool

	// NetworkPort reads 10.0.0.0/8:8443 and [2001:db8::/32]:8443 as the network, and
	// *:8443 as everything, on that port. If false, they cover nothing.
	NetworkPort bool

	// ApexOfDot reads ".example.com" as the name itself and the names below it, as
	// curl, urllib, requests and undici do. "*.example.com" still covers only the
	// names below. If false, ".example.com" does too.
	ApexOfDot bool

	// SpaceSeparates makes white space separate items, as commas do. If false, an
	// item with white space in it is a name that no host has.
	SpaceSeparates bool

	// LocalhostNames makes the names below localhost bypass the proxy, as RFC 6761
	// says. If false, only "localhost" itself does without being listed.
	LocalhostNames bool

	// NoImpliedLoopback makes only the list decide about localhost and loopback
	// addresses, whatever LocalhostNames says. If false, they bypass the proxy.
	NoImpliedLoopback bool
}

// Parse compiles a list as [Parse] does, with the extensions of o.
//
// Without o.Strict the error is nil. With it, the error joins an [*EntryError] for
// each item that is not valid, in the order of the list; errors.As finds the first.
// The Rules are not nil then either, and have the valid items.
func (o Options) Parse(list string) (*Rules, error) {
	var err error
	if o.Strict {
		err = o.validateList(list)
	}
	o.Strict = false // the Rules don't depend on it
	if o == (Options{}) {
		return Parse(list), err
	}
	return o.compileRules(list), err
}

// compileRules is Parse for Options other than zero.
func (o Options) compileRules(list string) *Rules {
	r := &Rules{list: list}
	ext := &extension{options: o}
	var addrs addrBuilder
	ports := make(map[string]*addrBuilder) // of networks that have a port
	for item := range o.splitItems(list) {
		switch e := o.parseItem(item); {
		case e.kind == everything && e.port != "":
			ext.everyPort = append(ext.everyPort, e.port)
		case e.kind == everything:
			ext.everything = true
		case e.kind == addresses && e.port != "" && e.span.first != e.span.last:
			if ports[e.port] == nil {
				ports[e.port] = new(addrBuilder)
			}
			ports[e.port].addSpan(e.span, "")
		case e.kind == addresses:
			addrs.addSpan(e.span, e.port)
		case e.kind == domain:
			r.names.addName(e.name, e.port, e.apex)
		}
	}
	if o.LocalhostNames && !o.NoImpliedLoopback {
		r.names.addName("localhost", "", false)
	}
	r.addrs = addrs.build()
	for port, b := range ports {
		if ext.networks == nil {
			ext.networks = make(map[string]*addrTable, len(ports))
		}
		t := b.build()
		ext.networks[port] = &t
	}
	r.extension, r.slowPath = ext, true
	return r
}

// splitItems returns the items of a list, whose places are the indexes in errors and
// explanations. Two commas have an empty item between them; white space has not.
func (o Options) splitItems(list string) func(yield func(string) bool) {
	if !o.SpaceSeparates {
		return strings.SplitSeq(list, ",")
	}
	return func(yield func(string) bool) {
		for item := range strings.SplitSeq(list, ",") {
			words := strings.FieldsFunc(item, unicode.IsSpace)
			if len(words) == 0 {
				words = []string{""}
			}
			for _, word := range words {
				if !yield(word) {
					return
				}
			}
		}
	}
}

// parseItem is parseEntry with o's extensions.
func (o Options) parseItem(item string) entry {
	item = strings.TrimSpace(item)
	if o.NetworkPort {
		if e, ok := networkPort(strings.ToLower(item)); ok {
			return e
		}
	}
	if o.BracketsWithoutPort && strings.HasPrefix(item, "[") && strings.HasSuffix(item, "]") {
		item += ":" // parseEntry reads an empty port as any port
	}
	if o.FoldTrailingDot {
		item = foldItem(item)
	}
	e := parseEntry(item)
	if o.ApexOfDot && e.kind == domain && strings.HasPrefix(item, ".") {
		e.apex = true
	}
	return e
}

// networkPort parses *:port, network:port and [network]:port.
func networkPort(item string) (entry, bool) {
	colon := strings.LastIndexByte(item, ':')
	if colon < 0 || colon == len(item)-1 {
		return entry{}, false
	}
	host, port := item[:colon], item[colon+1:]
	if host == "*" {
		return entry{kind: everything, port: port}, true
	}
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	// A colon after the slash cannot belong to the address.
	s, ok := parseCIDR(host)
	return entry{kind: addresses, span: s, port: port}, ok
}

// foldItem removes the dot at the end of an item's name or address.
func foldItem(item string) string {
	if host, port, err := net.SplitHostPort(item); err == nil && !strings.Contains(host, ":") {
		return foldDot(host) + ":" + port
	}
	return foldDot(item)
}

func foldDot(name string) string {
	if len(name) > 1 {
		return strings.TrimSuffix(name, ".")
	}
	return name
}

// extension is what Rules with Options have in addition.
type extension struct {
	options    Options
	everything bool                  // the list has the item "*"
	everyPort  []string              // the ports of *:port
	networks   map[string]*addrTable // networks by port
}

// bypass is Bypass for the Rules that x belongs to.
func (x *extension) bypass(r *Rules, host, port string) bool {
	plain := isPlain(host)
	if !plain {
		host = toASCII(host)
	}
	if x.options.FoldTrailingDot {
		host = foldDot(host)
	}
	if x.everything || slices.Contains(x.everyPort, port) {
		return true
	}
	implied := !x.options.NoImpliedLoopback
	if n, ok := parseNumber(host); ok {
		return implied && n.isLoopback() || r.addrs.contains(n, port) || x.networkContains(n, port)
	}
	if implied && host == "localhost" {
		return true
	}
	if plain {
		return matchName(&r.names, host, port)
	}
	return r.names.matchFold(host, port)
}

func (x *extension) networkContains(n ipNumber, port string) bool {
	t := x.networks[port]
	return t != nil && t.contains(n, "")
}
