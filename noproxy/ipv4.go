package noproxy

import "math/bits"

// ipv4Table is a set of IPv4 addresses. Nearly all addresses of a list are of
// this family, so it takes a quarter of the memory of []span, and has an index
// that leaves little to search.
type ipv4Table struct {
	spans []span4 // sorted and disjoint
	// index[i] is the first span that ends at or above the i-th block of
	// 1<<shift addresses, counted from the first address of the first span.
	index []uint32
	shift int
}

type span4 struct{ first, last uint32 }

// newIPv4Table makes a table of spans that are sorted and disjoint.
func newIPv4Table(spans []span) ipv4Table {
	if len(spans) == 0 {
		return ipv4Table{}
	}
	t := ipv4Table{spans: make([]span4, len(spans))}
	for i, s := range spans {
		t.spans[i] = span4{uint32(s.first.lo), uint32(s.last.lo)}
	}
	// About a block for every two to four spans.
	size := t.spans[len(spans)-1].last - t.spans[0].first
	t.shift = max(0, bits.Len32(size)-bits.Len(uint(len(spans)/4)))
	t.index = make([]uint32, 0, size>>t.shift+2)
	next := 0
	for block := range size>>t.shift + 1 {
		for t.spans[next].last-t.spans[0].first < block<<t.shift {
			next++
		}
		t.index = append(t.index, uint32(next))
	}
	t.index = append(t.index, uint32(len(spans)-1))
	return t
}

func (t *ipv4Table) contains(n uint32) bool {
	if len(t.spans) == 0 || n < t.spans[0].first {
		return false
	}
	block := uint64(n-t.spans[0].first) >> t.shift
	if block+1 >= uint64(len(t.index)) {
		return false
	}
	low, high := t.index[block], t.index[block+1]
	// Find the first span that ends at n or later.
	for low < high {
		mid := low + (high-low)/2
		if t.spans[mid].last < n {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return t.spans[low].first <= n && n <= t.spans[low].last
}
