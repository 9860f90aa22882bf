package noproxy

import (
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// spelling is a way to write an item for some consumer.
type spelling struct {
	items []string
	wider string // what else it covers for some; "" if that is not to be risked
}

// reading is how well a consumer reads a spelling.
type reading int

const (
	nowhere  reading = iota // covers nothing of what it should, or too much
	narrower                // covers a part
	wider                   // covers more, in a way that can be named
	exact                   // as Go reads the item
)

// rendition is a spelling and how a consumer reads it.
type rendition struct {
	spelling
	reading      reading
	missed, over *probe // the first that it wrongly does not cover, or covers
}

// quote returns the spelling for a sentence. Of many items it shows the ends.
func (s spelling) quote(separator string) string {
	items := s.items
	if n := len(items); n > 4 {
		items = []string{items[0], "...", items[n-1]}
	}
	return strconv.Quote(strings.Join(items, separator))
}

// andProxies ends a sentence with what is not covered.
func (r rendition) andProxies() string {
	if r.missed == nil {
		return ""
	}
	return fmt.Sprintf(", and sends %v through the proxy", *r.missed)
}

// spell returns the spelling of an item that the consumer reads best.
func (c Consumer) spell(item string) rendition {
	best := c.read(spelling{}, item)
	best.reading = nowhere // even if it is implied
	for _, s := range spellings(item) {
		if r := c.read(s, item); r.reading > best.reading {
			best = r
		}
		if best.reading == exact {
			break
		}
	}
	return best
}

// read compares what the consumer makes of a spelling to Go's reading of item.
func (c Consumer) read(s spelling, item string) rendition {
	r := rendition{spelling: s}
	match, implied := c.compile(strings.Join(s.items, ",")), c.compile("")
	rules := Options{NoImpliedLoopback: true}.compile(item)
	hit := false
	for _, p := range probes(item) {
		t := newTarget(p.host, p.port)
		got, want := match(t), rules.Bypass(p.host, t.port)
		hit = hit || got && want
		if want && !got && r.missed == nil {
			r.missed = &p
		}
		// What is implied no spelling changes.
		if got && !want && r.over == nil && !implied(t) {
			r.over = &p
		}
	}
	switch {
	case r.missed == nil && r.over == nil:
		r.reading = exact
	case !hit, r.over != nil && s.wider == "":
		r.reading = nowhere
	case r.missed != nil:
		r.reading = narrower
	default:
		r.reading = wider
	}
	return r
}

// spellings returns the ways to write an item; the first is the item.
func spellings(item string) []spelling {
	item = strings.TrimSpace(item)
	e := parseEntry(item)
	as := func(wider string, items ...string) spelling { return spelling{items, wider} }
	switch {
	case e.kind == domain && e.apex:
		return []spelling{as("", item), as("", e.with(e.name)), as("", e.with(e.name), e.with("*."+e.name))}
	case e.kind == domain:
		also := fmt.Sprintf("also covers %q itself", e.name)
		return []spelling{as(also, item), as(also, e.with("."+e.name)), as("", e.with("*."+e.name))}
	case e.kind == addresses && e.span.first == e.span.last:
		addr := e.span.first.addr().String()
		return []spelling{as("", item), as("", e.with(addr)), as("", "["+addr+"]")}
	case e.kind == addresses && e.span.first.is4() && e.span.bits() > 96:
		also := "also covers names that begin with the same numbers"
		return []spelling{as("", item), as("", e.span.cidr()), as(also, e.span.patterns()...)}
	case e.kind == addresses:
		return []spelling{as("", item), as("", e.span.cidr())}
	}
	return []spelling{as("", item)}
}

// with returns host with the port of e, if it has one.
func (e entry) with(host string) string {
	if e.port == "" {
		return host
	}
	return net.JoinHostPort(host, e.port)
}

// bits returns the length of the prefix that s is.
func (s span) bits() int {
	if s.first.hi != s.last.hi {
		return bits.LeadingZeros64(s.first.hi ^ s.last.hi)
	}
	return 64 + bits.LeadingZeros64(s.first.lo^s.last.lo)
}

func (s span) cidr() string {
	size := s.bits()
	if s.first.is4() {
		size -= 96
	}
	return netip.PrefixFrom(s.first.addr(), size).String()
}

// patterns returns an IPv4 network as text with an asterisk at the end, for who
// knows no networks: 172.16.0.0/15 is 172.16.* and 172.17.*.
func (s span) patterns() []string {
	octets := (s.bits() - 96 + 7) / 8 // that the patterns have
	var patterns []string
	step := uint64(1) << (32 - 8*octets)
	for n := s.first.lo; n <= s.last.lo; n += step {
		text := make([]string, octets)
		for i := range text {
			text[i] = fmt.Sprint(byte(n >> (24 - 8*i)))
		}
		if octets < 4 {
			text = append(text, "*")
		}
		patterns = append(patterns, strings.Join(text, "."))
	}
	return patterns
}
