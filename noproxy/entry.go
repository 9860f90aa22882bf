package noproxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// entry is one item of a list.
type entry struct {
	kind kind
	port string // "": any port

	network netip.Prefix // of addresses

	name string // of a domain, without "." or "*." at the beginning
	apex bool   // of a domain: covers the name itself too
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
	if network, ok := parseCIDR(item); ok {
		return entry{kind: addresses, network: network}
	}
	host, port := item, ""
	if strings.Contains(item, ":") {
		// An item that can't be split has no port, such as an IPv6 address.
		if h, p, err := net.SplitHostPort(item); err == nil {
			host, port = h, p
		}
	}
	if host == "" {
		return entry{kind: nothing}
	}
	if addr, ok := parseAddr(host); ok && !hasZone(host) {
		return entry{kind: addresses, network: netip.PrefixFrom(addr, addr.BitLen()), port: port}
	}
	return domainEntry(host, port)
}

func domainEntry(name, port string) entry {
	if strings.HasPrefix(name, "*.") {
		name = name[1:]
	}
	name, below := strings.CutPrefix(name, ".")
	if !isASCII(name) {
		// httpproxy converts the name with a dot before it.
		name = strings.TrimPrefix(toASCII("."+name), ".")
	}
	return entry{kind: domain, name: name, apex: !below, port: port}
}

// toASCII converts an internationalised name to its ASCII form. It returns a name
// that can't be converted unchanged: the list may have it in the same spelling.
func toASCII(name string) string {
	if isASCII(name) {
		return name
	}
	if a, err := idna.Lookup.ToASCII(name); err == nil {
		return a
	}
	return name
}

// EntryError says why an item of a list is not valid.
type EntryError struct {
	Index int    // of the item, from 0; empty items count
	Text  string // the item; "redacted" if it may have credentials
	// Reason says what is wrong with the item and what to write instead, for a
	// human.
	Reason string
}

// Error names the item by its place and its text. It holds no credentials.
func (e *EntryError) Error() string {
	return fmt.Sprintf("noproxy: entry %d %q: %s", e.Index, e.Text, e.Reason)
}

// validateList returns the joined errors of the items that can match no host.
func validateList(list string) error {
	if strings.TrimSpace(list) == "" {
		return nil // an empty list is valid
	}
	var errs []error
	eachFault(strings.Split(list, ","), func(i int, text, reason string) {
		errs = append(errs, &EntryError{Index: i, Text: text, Reason: reason})
	})
	return errors.Join(errs...)
}

// eachFault calls f for each item that can't be used, with what may be shown of it.
func eachFault(items []string, f func(index int, text, reason string)) {
	shown := redactItems(items)
	for i, item := range items {
		item, text := strings.TrimSpace(item), strings.TrimSpace(shown[i])
		reason := itemFault(item)
		if reason != "" && text != item {
			reason = "a URL or credentials; write the host alone"
		}
		if reason != "" {
			f(i, text, reason)
		}
	}
}

// itemFault returns why an item can match no host, or "".
func itemFault(item string) string {
	if item == "" {
		return "empty"
	}
	e := parseEntry(item)
	if e.port != "" && !validPort(e.port) {
		return "the port is not a number from 1 to 65535 without leading zeros"
	}
	switch e.kind {
	case nothing:
		return "a port without a host"
	case domain:
		if reason := formFault(item); reason != "" {
			return reason
		}
		return nameFault(e.name, e.apex)
	}
	return ""
}

// validPort reports whether a host can be asked about with this port: ports
// compare as strings.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == port
}

// formFault returns what is wrong with an item that was read as a name and was
// probably meant to be something else, or "".
func formFault(item string) string {
	e, split := networkPort(strings.ToLower(item))
	switch host, _, err := net.SplitHostPort(item); {
	case strings.ContainsAny(item, " \t\r\n\v\f"):
		return "white space does not separate items; write a comma"
	case strings.ContainsAny(item, "|;"):
		return "only commas separate items"
	case split && e.kind == addresses:
		return "a network cannot have a port; write the network alone"
	case strings.Contains(item, "/"):
		return "not a network; write an address, a slash and a length that fits it"
	case strings.HasPrefix(item, "[") && strings.HasSuffix(item, "]"):
		return "brackets need a port; write the address without them"
	case err == nil && hasZone(host), err != nil && strings.Contains(item, "%"):
		return "an address with a zone; write it without the zone"
	case err != nil && strings.Contains(item, ":"):
		return "neither an IPv6 address nor a host and a port"
	}
	return ""
}

// networkPort parses *:port, network:port and [network]:port, which cover nothing for Go.
func networkPort(item string) (entry, bool) {
	colon := strings.LastIndexByte(item, ':')
	if colon < 0 || colon == len(item)-1 {
		return entry{}, false
	}
	host, port := item[:colon], item[colon+1:]
	if host == "*" {
		return entry{kind: everything, port: port}, true
	}
	// A colon after the slash cannot belong to the address.
	network, ok := parseCIDR(trimBrackets(host))
	return entry{kind: addresses, network: network, port: port}, ok
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

// nameFault returns why no host has the name or one below it.
func nameFault(name string, apex bool) string {
	rooted := strings.TrimSuffix(name, ".")
	switch {
	case name == "" && !apex:
		return "" // "." covers the names that end in a dot
	case rooted == "":
		return "an empty label"
	case len(rooted) > maxName:
		return "longer than a name can be"
	}
	name = rooted
	if !isASCII(name) {
		// The whole name is converted, since some rules are about all its labels.
		if _, err := idna.Lookup.ToASCII(name); err != nil {
			return "not an internationalised name"
		}
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	for label := range strings.SplitSeq(name, ".") {
		if reason := labelFault(label); reason != "" {
			return reason
		}
	}
	if isDigits(last) {
		return "not an address, and no name ends in a number"
	}
	return ""
}

func labelFault(label string) string {
	switch {
	case label == "":
		return "an empty label"
	case len(label) > 63:
		return "a label longer than 63 bytes"
	case strings.Contains(label, "*"):
		return "an asterisk stands alone or before a dot at the beginning"
	case !isASCII(label):
		return "" // checked with the whole name
	}
	for i := range len(label) {
		c := label[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return fmt.Sprintf("no name has the character %q", c)
		}
	}
	return ""
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// redacted replaces an item that may have credentials.
const redacted = "redacted"

// redactItems returns the items of a list in a form that may be shown. It hides
// items that may have credentials: URLs, user info, and the items between a URL and
// the end of its user info, since a comma in a password splits it into items.
func redactItems(items []string) []string {
	shown := slices.Clone(items)
	last := -1 // the last item with an @
	for i, item := range items {
		if strings.Contains(item, "@") {
			last = i
		}
	}
	open := false // the user info of a URL has not ended yet
	for i, item := range items {
		scheme, _, url := strings.Cut(item, "://")
		at := strings.Contains(item, "@")
		if url {
			shown[i] = redactURL(scheme)
		} else if at || open {
			shown[i] = redacted
		}
		open = (open || url) && !at && i < last
	}
	return shown
}

// redactURL returns only the scheme of a URL, and that only if it is a known one:
// in a malformed URL the user info may end anywhere.
func redactURL(scheme string) string {
	switch scheme = strings.ToLower(strings.TrimSpace(scheme)); scheme {
	case "http", "https", "socks5", "socks5h":
		return scheme + "://" + redacted
	}
	return redacted
}
