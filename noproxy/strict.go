package noproxy

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// EntryError says why an item of a list is not valid.
type EntryError struct {
	Index int    // of the item, from 0; empty items count
	Text  string // the item; "redacted" where it may hold credentials
	// Reason says what is wrong with the item, and what to write instead.
	Reason string
}

// Error names the item by its place and its text. It holds no credentials.
func (e *EntryError) Error() string {
	return fmt.Sprintf("noproxy: entry %d %q: %s", e.Index, e.Text, e.Reason)
}

// validate returns the joined errors of the items that can match no host.
func (o Options) validate(list string) error {
	if strings.TrimSpace(list) == "" {
		return nil // no list is no mistake
	}
	var errs []error
	items := slices.Collect(o.items(list))
	shown := redactItems(items)
	for i, item := range items {
		item = strings.TrimSpace(item)
		reason := o.fault(item)
		if reason == "" {
			continue
		}
		text := strings.TrimSpace(shown[i])
		if text != item {
			reason = "a URL or credentials; write the host alone"
		}
		errs = append(errs, &EntryError{Index: i, Text: text, Reason: reason})
	}
	return errors.Join(errs...)
}

// fault returns why an item can match no host, or "".
func (o Options) fault(item string) string {
	if item == "" {
		return "empty"
	}
	e := o.entry(item)
	if e.port != "" && !validPort(e.port) {
		return "the port is not a number from 1 to 65535 without leading zeros"
	}
	switch e.kind {
	case nothing:
		return "a port without a host"
	case domain:
		if reason := o.shapeFault(item); reason != "" {
			return reason
		}
		return o.nameFault(e.name, e.apex)
	}
	return ""
}

// validPort reports whether a host can be asked about with this port: ports
// compare as strings.
func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == port
}

// shapeFault knows what an item that was read as a name was meant to be.
func (o Options) shapeFault(item string) string {
	switch host, _, err := net.SplitHostPort(item); {
	case strings.ContainsAny(item, " \t\r\n\v\f"):
		return "white space does not separate items; write a comma"
	case strings.ContainsAny(item, "|;"):
		return "only commas separate items"
	case strings.Contains(item, "/") && strings.Contains(item, ":") && !o.NetworkPort && isNetworkPort(item):
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

func isNetworkPort(item string) bool {
	e, ok := networkPort(strings.ToLower(item))
	return ok && e.kind == addresses
}

// nameFault returns why no host has the name or one below it.
func (o Options) nameFault(name string, apex bool) string {
	rooted, dot := strings.CutSuffix(name, ".")
	switch {
	case name == "" && !apex && !o.FoldTrailingDot:
		return "" // "." covers the names that end in a dot
	case dot && o.FoldTrailingDot, rooted == "":
		return "an empty label"
	case len(rooted) > maxName:
		return "longer than a name can be"
	}
	name = rooted
	if !isASCII(name) {
		// Of the whole name: its labels bind each other (bidi, characters
		// that only an ASCII name may have).
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
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
