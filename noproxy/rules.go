package noproxy

import (
	"fmt"
	"net"
	"strings"
)

// Rules is a compiled no_proxy list. It never changes, so it is safe for concurrent
// use.
//
// A nil *Rules and the zero Rules stand for the empty list: only localhost and
// loopback addresses bypass the proxy.
type Rules struct {
	list       string // as given; most keys of names share its memory
	everything bool   // the list has the item "*"
	explicit   bool   // Options.NoImpliedLoopback
	addrs      addrTable
	names      nameTable
}

// Parse compiles a no_proxy list as Go's httpproxy reads it. Nothing is an error: an
// item that is not valid covers nothing, or a name that no host has. [Options.Parse]
// reports such items.
//
// The result is not nil. It keeps list in memory.
func Parse(list string) *Rules { return compileRules(list, false) }

func compileRules(list string, explicit bool) *Rules {
	r := &Rules{list: list, explicit: explicit, addrs: addrTable{onePort: map[addrPort]bool{}},
		names: nameTable{anyPort: map[string]bool{}, onePort: map[namePort]bool{}}}
	for item := range strings.SplitSeq(list, ",") {
		switch e := parseEntry(item); e.kind {
		case everything:
			return &Rules{list: list, everything: true}
		case addresses:
			r.addrs.addNetwork(e.network, e.port)
		case domain:
			r.names.addName(e.name, e.port, e.apex)
		}
	}
	r.addrs.networks = outerNetworks(r.addrs.networks)
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
	if r.everything || host == "localhost" && !r.explicit {
		return true
	}
	if addr, ok := parseAddr(host); ok {
		return addr.IsLoopback() && !r.explicit || r.addrs.contains(addr, port)
	}
	if plain {
		return matchName(&r.names, host, port)
	}
	return r.names.matchFold(host, port)
}

// Options change how a list is read. The zero Options read it as [Parse] does.
type Options struct {
	// Strict makes Parse return an error for each item that can match no host:
	// a URL, a network with an impossible length, an asterisk inside a word, an
	// empty item. If false, such an item is kept and covers nothing.
	Strict bool

	// NoImpliedLoopback makes only the list decide about localhost and loopback
	// addresses. If false, they bypass the proxy.
	NoImpliedLoopback bool
}

// Parse compiles a list as [Parse] does, with the options of o.
//
// Without o.Strict the error is nil. With it, the error joins an [*EntryError] for
// each item that is not valid, in the order of the list; errors.As finds the first.
// The Rules are not nil then either, and have the valid items.
func (o Options) Parse(list string) (*Rules, error) {
	var err error
	if o.Strict {
		err = validateList(list)
	}
	return compileRules(list, o.NoImpliedLoopback), err
}

// Explanation says which item of a list decided about a host, and why. It has no
// credentials in it, whatever is in the list.
type Explanation struct {
	Host   string `json:"host"`   // as asked
	Port   string `json:"port"`   // as asked
	Bypass bool   `json:"bypass"` // the verdict of [Rules.Bypass]
	Index  int    `json:"index"`  // of the item that decided, from 0; -1 if none did
	Text   string `json:"text"`   // of that item; "" if none did
	Reason string `json:"reason"` // why, for a human; the text may change
}

// String returns the verdict and its reason in one line.
func (e Explanation) String() string {
	target, verdict := e.Host, "through the proxy"
	if e.Port != "" {
		target = net.JoinHostPort(e.Host, e.Port)
	}
	if e.Bypass {
		verdict = "direct"
	}
	if e.Index < 0 {
		return fmt.Sprintf("%s: %s: %s", target, verdict, e.Reason)
	}
	return fmt.Sprintf("%s: %s: entry %d %q: %s", target, verdict, e.Index, e.Text, e.Reason)
}

// Explain returns the verdict of Bypass for host and port, and the first item of the
// list that covers the host. localhost and loopback addresses need no item. If no
// item covers the host, the reason names an item that nearly does.
//
// Explain compiles the list item by item: use it for humans and logs, not for each
// connection. It is safe for concurrent use.
func (r *Rules) Explain(host, port string) Explanation {
	if r == nil {
		r = &Rules{}
	}
	e := Explanation{Host: host, Port: port, Index: -1}
	if compileRules("", r.explicit).Bypass(host, port) {
		e.Bypass, e.Reason = true, "localhost and loopback addresses are never proxied"
		return e
	}
	items := strings.Split(r.list, ",")
	shown := redactItems(items)
	for i, item := range items {
		if itemCovers(item, host, port) {
			e.Bypass, e.Index, e.Text = true, i, strings.TrimSpace(shown[i])
			e.Reason = coverReason(parseEntry(item))
			return e
		}
	}
	e.Reason = missReason(items, shown, host, port)
	return e
}

// itemCovers reports whether a list of only this item covers a host.
func itemCovers(item, host, port string) bool { return compileRules(item, true).Bypass(host, port) }

func coverReason(e entry) string {
	var what string
	switch {
	case e.kind == everything:
		what = "everything"
	case e.kind == addresses && e.network.IsSingleIP():
		what = "the address"
	case e.kind == addresses:
		what = "an address of the network"
	case e.name == "":
		what = "a name that ends in a dot"
	case e.apex:
		what = "the name or one below it"
	default:
		what = "a name below it"
	}
	if e.port != "" {
		what += ", on port " + e.port
	}
	return what
}

// missReason looks for an item that would cover the host if it were written, or
// read, a little differently.
func missReason(items, shown []string, host, port string) string {
	for i, item := range items {
		if shown[i] != item {
			continue // its port may be a password
		}
		text := strings.TrimSpace(item)
		if e := parseEntry(item); e.port != "" && itemCovers(item, host, e.port) {
			return fmt.Sprintf("no entry covers it; entry %d %q is for port %s only", i, text, e.port)
		}
		network, _ := networkPort(text)
		for _, lax := range []struct {
			possible          bool
			item, host, reads string
		}{
			{true, foldItem(text), foldDot(toASCII(host)), "but for the dot at the end"},
			{true, strings.TrimPrefix(text, "."), host, "but covers only the names below it"},
			{true, trimBrackets(text), host, "but brackets need a port"},
			{network.port == port, trimBrackets(strings.TrimSuffix(text, ":"+port)), host, "but a network or an asterisk cannot have a port"},
			{true, strings.Join(strings.Fields(text), ","), host, "but white space does not separate items"},
		} {
			if lax.possible && itemCovers(lax.item, lax.host, port) {
				return fmt.Sprintf("no entry covers it; entry %d %q would, %s", i, text, lax.reads)
			}
		}
	}
	return "no entry covers it"
}
