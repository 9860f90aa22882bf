package noproxy

import (
	"fmt"
	"net"
	"strings"
)

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
