package noproxy

import (
	"cmp"
	"slices"
)

// addrTable holds the addresses of a list.
type addrTable struct {
	v4      ipv4Table
	v6      []span            // sorted and disjoint
	onePort map[addrPort]bool // single addresses that are listed with a port
}

type addrPort struct {
	addr number
	port string
}

func (t *addrTable) match(n number, port string) bool {
	if n.is4() && t.v4.contains(uint32(n.lo)) || !n.is4() && contains(t.v6, n) {
		return true
	}
	return len(t.onePort) > 0 && t.onePort[addrPort{n, port}]
}

// addrBuilder collects the spans of an addrTable.
type addrBuilder struct {
	v4, v6  []span
	onePort map[addrPort]bool
}

func (b *addrBuilder) add(s span, port string) {
	switch {
	case port != "":
		if b.onePort == nil {
			b.onePort = make(map[addrPort]bool)
		}
		b.onePort[addrPort{s.first, port}] = true
	case s.first.is4():
		b.v4 = append(b.v4, s)
	default:
		b.v6 = append(b.v6, s)
	}
}

func (b *addrBuilder) table() addrTable {
	return addrTable{
		v4:      newIPv4Table(merge(b.v4)),
		v6:      slices.Clone(merge(b.v6)),
		onePort: b.onePort,
	}
}

// merge sorts spans, in place, and joins those that overlap. Those that merely
// touch stay apart, which spares the question what comes after the last address.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.first.hi, b.first.hi), cmp.Compare(a.first.lo, b.first.lo))
	})
	merged := spans[:0]
	for _, s := range spans {
		end := len(merged) - 1
		if end < 0 || merged[end].last.less(s.first) {
			merged = append(merged, s)
		} else if merged[end].last.less(s.last) {
			merged[end].last = s.last
		}
	}
	return merged
}

// contains reports whether n is in one of the spans.
func contains(spans []span, n number) bool {
	// Find the first span that ends at n or later.
	low, high := 0, len(spans)
	for low < high {
		mid := low + (high-low)/2
		if spans[mid].last.less(n) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < len(spans) && !n.less(spans[low].first)
}
