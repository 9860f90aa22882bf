package noproxy

import (
	"net"
	"slices"
	"strings"
	"unicode"
)

// Options turns on what Go's httpproxy does not do. Each field is one
// extension, off by default; the zero Options read a list as [Parse] does.
//
// An extension makes this process read a list in another way than net/http, and
// a program written in Go, does. Ask [Lint] what others make of the list.
type Options struct {
	// Strict makes Parse return an error for each item that can match no host:
	// a URL, a network with an impossible length, an asterisk inside a word, an
	// empty item. If false, such an item is kept and covers nothing.
	Strict bool

	// FoldTrailingDot takes "example.com." for "example.com", in the list and
	// in what is asked, and "10.0.0.1." for "10.0.0.1". If false, a dot at the
	// end counts. curl and undici fold it.
	FoldTrailingDot bool

	// BracketsWithoutPort takes [2001:db8::1] for the address on every port. If
	// false, such an item covers nothing.
	BracketsWithoutPort bool

	// NetworkPort takes 10.0.0.0/8:8443, [2001:db8::/32]:8443 and *:8443 for
	// the network, or for everything, on one port. If false, they cover nothing.
	NetworkPort bool

	// ApexOfDot takes ".example.com" for "example.com": the name itself and
	// those below it. "*.example.com" still leaves the name out. If false, both
	// do. curl, urllib, requests and undici include the name.
	ApexOfDot bool

	// SpaceSeparates takes white space for a separator, as commas are. If false,
	// white space inside an item makes it a name that no host has.
	SpaceSeparates bool

	// LocalhostNames adds the names below localhost to what is never proxied,
	// as RFC 6761 has it. If false, only "localhost" itself is implied.
	LocalhostNames bool

	// NoImpliedLoopback lets the list alone decide about localhost and loopback
	// addresses, LocalhostNames or not. If false, they are never proxied.
	NoImpliedLoopback bool
}

// Parse compiles a list as [Parse] does, with the extensions of o.
//
// Without o.Strict the error is nil. With it, the error joins one [*EntryError]
// for each item that is not valid, in the order of the list; errors.As finds
// the first. The Rules are not nil even then, and hold the valid items.
func (o Options) Parse(list string) (*Rules, error) {
	var err error
	if o.Strict {
		err = o.validate(list)
	}
	o.Strict = false // which makes no other Rules
	if o == (Options{}) {
		return Parse(list), err
	}
	return o.compile(list), err
}

// compile is Parse with options.
func (o Options) compile(list string) *Rules {
	r := &Rules{list: list}
	ext := &extension{opts: o}
	var addrs addrBuilder
	ports := make(map[string]*addrBuilder) // of networks that have a port
	for item := range o.items(list) {
		switch e := o.entry(item); {
		case e.kind == everything && e.port != "":
			ext.everyPort = append(ext.everyPort, e.port)
		case e.kind == everything:
			ext.all = true
		case e.kind == addresses && e.port != "" && e.span.first != e.span.last:
			if ports[e.port] == nil {
				ports[e.port] = new(addrBuilder)
			}
			ports[e.port].add(e.span, "")
		case e.kind == addresses:
			addrs.add(e.span, e.port)
		case e.kind == domain:
			r.names.add(e.name, e.port, e.apex)
		}
	}
	if o.LocalhostNames && !o.NoImpliedLoopback {
		r.names.add("localhost", "", false)
	}
	r.addrs = addrs.table()
	for port, b := range ports {
		if ext.networks == nil {
			ext.networks = make(map[string]*addrTable, len(ports))
		}
		t := b.table()
		ext.networks[port] = &t
	}
	r.ext, r.special = ext, true
	return r
}

// items returns the items of a list with the index that errors and explanations
// give. Only commas count: white space makes no empty items.
func (o Options) items(list string) func(yield func(string) bool) {
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

// entry is parseEntry with options.
func (o Options) entry(item string) entry {
	item = strings.TrimSpace(item)
	if o.NetworkPort {
		if e, ok := networkPort(strings.ToLower(item)); ok {
			return e
		}
	}
	if o.BracketsWithoutPort && strings.HasPrefix(item, "[") && strings.HasSuffix(item, "]") {
		item += ":" // which httpproxy reads as any port
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

// foldItem drops the dot at the end of the name or address of an item.
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

// extension is what Rules with options have besides those without. It is kept
// apart so that Bypass without options does not pay for it.
type extension struct {
	opts      Options
	all       bool                  // the list has a lone "*"
	everyPort []string              // ports of *:port
	networks  map[string]*addrTable // networks by port
}

// bypass is Bypass for the Rules that x belongs to.
func (x *extension) bypass(r *Rules, host, port string) bool {
	plain := isPlain(host)
	if !plain {
		host = toASCII(host)
	}
	if x.opts.FoldTrailingDot {
		host = foldDot(host)
	}
	if x.all || slices.Contains(x.everyPort, port) {
		return true
	}
	implied := !x.opts.NoImpliedLoopback
	if n, ok := parseNumber(host); ok {
		return implied && n.isLoopback() || r.addrs.match(n, port) || x.match(n, port)
	}
	if implied && host == "localhost" {
		return true
	}
	if plain {
		return matchName(&r.names, host, port)
	}
	return r.names.matchFold(host, port)
}

func (x *extension) match(n number, port string) bool {
	t := x.networks[port]
	return t != nil && t.match(n, "")
}
