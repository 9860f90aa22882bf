package noproxy

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// spelling is a way to write an item for some consumer.
type spelling struct {
	items []string
	wider string // what else it may cover; "" if it must not cover more
}

// reading says how well a consumer reads a spelling. A higher one is better.
type reading int

const (
	unusable reading = iota // covers nothing that it should, or too much
	narrower                // covers a part
	wider                   // covers all, and what spelling.wider names
	exact                   // covers what the item covers for Go
)

// spellingResult says how a consumer reads a spelling.
type spellingResult struct {
	spelling
	reading reading
	missed  *question // the first that it misses
}

// quoteItems returns the spelling in quotes. Of many items it shows the first and the
// last.
func (s spelling) quoteItems(separator string) string {
	items := s.items
	if n := len(items); n > 4 {
		items = []string{items[0], "...", items[n-1]}
	}
	return strconv.Quote(strings.Join(items, separator))
}

// missedText returns the end of a sentence that names what is not covered, or "".
func (r spellingResult) missedText() string {
	if r.missed == nil {
		return ""
	}
	return fmt.Sprintf(", and sends %v through the proxy", *r.missed)
}

// bestSpelling returns the spelling of an item that the consumer reads best.
func (c Consumer) bestSpelling(item string) spellingResult {
	best := c.readSpelling(spelling{}, item)
	best.reading = unusable // even if it is implied
	for _, s := range possibleSpellings(item) {
		if r := c.readSpelling(s, item); r.reading > best.reading {
			best = r
		}
		if best.reading == exact {
			break
		}
	}
	return best
}

// readSpelling compares the consumer's reading of a spelling with Go's reading of
// item.
func (c Consumer) readSpelling(s spelling, item string) spellingResult {
	r := spellingResult{spelling: s}
	match, implied := c.newMatcher(strings.Join(s.items, ",")), c.newMatcher("")
	rules := compileRules(item, true)
	hit, extra := false, false // it covers what it should, and what it should not
	for _, p := range itemQuestions(item) {
		t := newTarget(p.host, p.port)
		got, want := match(t), rules.Bypass(p.host, t.port)
		hit = hit || got && want
		if want && !got && r.missed == nil {
			r.missed = &p
		}
		// No spelling changes what the consumer implies.
		extra = extra || got && !want && !implied(t)
	}
	switch {
	case r.missed == nil && !extra:
		r.reading = exact
	case !hit, extra && s.wider == "":
		r.reading = unusable
	case r.missed != nil:
		r.reading = narrower
	default:
		r.reading = wider
	}
	return r
}

// possibleSpellings returns the ways to write an item. The first is the item itself.
func possibleSpellings(item string) []spelling {
	item = strings.TrimSpace(item)
	e := parseEntry(item)
	as := func(wider string, items ...string) spelling { return spelling{items, wider} }
	switch {
	case e.kind == domain && e.apex:
		return []spelling{as("", item), as("", e.withHost(e.name)), as("", e.withHost(e.name), e.withHost("*."+e.name))}
	case e.kind == domain:
		also := fmt.Sprintf("also covers %q itself", e.name)
		return []spelling{as(also, item), as(also, e.withHost("."+e.name)), as("", e.withHost("*."+e.name))}
	case e.kind == addresses && e.network.IsSingleIP():
		addr := e.network.Addr().String()
		return []spelling{as("", item), as("", e.withHost(addr)), as("", "["+addr+"]")}
	case e.kind == addresses && e.network.Addr().Is4() && e.network.Bits() > 0:
		also := "also covers names that begin with the same numbers"
		return []spelling{as("", item), as("", e.network.String()), as(also, textPatterns(e.network)...)}
	case e.kind == addresses:
		return []spelling{as("", item), as("", e.network.String())}
	}
	return []spelling{as("", item)}
}

// withHost returns host with the port of e, if it has one.
func (e entry) withHost(host string) string {
	if e.port == "" {
		return host
	}
	return net.JoinHostPort(host, e.port)
}

// textPatterns returns an IPv4 network as patterns, for consumers that know no
// networks: 172.16.0.0/15 is 172.16.* and 172.17.*.
func textPatterns(network netip.Prefix) []string {
	octets := (network.Bits() + 7) / 8 // in each pattern
	b := network.Addr().As4()
	first := binary.BigEndian.Uint32(b[:])
	var patterns []string
	for i := range uint32(1) << (8*octets - network.Bits()) {
		text := make([]string, octets)
		for k := range text {
			text[k] = fmt.Sprint(byte((first + i<<(32-8*octets)) >> (24 - 8*k)))
		}
		if octets < 4 {
			text = append(text, "*")
		}
		patterns = append(patterns, strings.Join(text, "."))
	}
	return patterns
}
