package noproxy

import (
	"slices"
	"strings"
)

// Entry is an item of a list, and where it is from.
type Entry struct {
	Text string `json:"text"` // the item
	From string `json:"from"` // who wants it, such as "Cluster.PodCIDRs"

	// Within is the text of an entry that covers the same and maybe more, as Go
	// reads it. Such an entry is not written into the list, but it is kept for
	// consumers that cannot read the other one. "" if there is none.
	Within string `json:"within,omitempty"`

	// Skipped says why the entry is left out altogether. "" if it is not.
	Skipped string `json:"skipped,omitempty"`
}

// List is a no_proxy list whose entries say where they are from. The nil List
// is empty. Methods do not change it, so goroutines may share it.
type List []Entry

// ParseList splits a list at commas, without judging the items; empty ones are
// dropped. from is the provenance of all of them.
func ParseList(list, from string) List {
	var l List
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			l = append(l, Entry{Text: item, From: from})
		}
	}
	return l
}

// String returns the list as Go reads it: the entries that are neither skipped
// nor within another, separated by commas. Like [Rules.String] it hides nothing.
func (l List) String() string {
	var items []string
	for _, e := range l {
		if e.stated() {
			items = append(items, e.Text)
		}
	}
	return strings.Join(items, ",")
}

func (e Entry) stated() bool { return e.Within == "" && e.Skipped == "" }

// Merge returns the entries of all lists in their order. Those that another one
// covers are marked with it, and so left out of [List.String]: an address
// within a network, a name below a name, the same with a port, an entry given
// twice. For Go the merged list covers what the lists cover together.
//
// A lone "*" stays beside the others: it does not hide them, so that the list is
// whole again when somebody takes it out. An entry that covers nothing stays,
// too. The time grows with the square of the number of entries.
func Merge(lists ...List) List {
	merged := slices.Concat(lists...)
	entries := make([]entry, len(merged))
	for i := range merged {
		merged[i].Within = ""
		if merged[i].Skipped == "" {
			entries[i] = parseEntry(merged[i].Text)
		}
	}
	// i is within j if j covers more, or the same and comes first.
	within := func(i, j int) bool {
		return i != j && entries[j].covers(entries[i]) && (j < i || !entries[i].covers(entries[j]))
	}
	hidden := make([]bool, len(merged))
	for i := range merged {
		for j := range merged {
			hidden[i] = hidden[i] || within(i, j)
		}
	}
	for i := range merged {
		for j := range merged {
			if !hidden[j] && within(i, j) {
				merged[i].Within = merged[j].Text
				break
			}
		}
	}
	return merged
}

// covers reports whether all that o covers is covered by e. Everything covers
// only itself here, for the sake of Merge.
func (e entry) covers(o entry) bool {
	if e.kind != o.kind || e.port != "" && e.port != o.port {
		return false
	}
	switch e.kind {
	case everything:
		return true
	case addresses:
		// The families are apart: mapped addresses are never in a span of IPv6.
		return e.span.first.is4() == o.span.first.is4() &&
			!o.span.first.less(e.span.first) && !e.span.last.less(o.span.last)
	case domain:
		if e.name == o.name {
			return e.apex || !o.apex
		}
		return strings.HasSuffix(o.name, "."+e.name)
	}
	return false
}
