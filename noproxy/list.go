package noproxy

import (
	"slices"
	"strings"
)

// Entry is an item of a list, and its source.
type Entry struct {
	Text string `json:"text"` // the item
	From string `json:"from"` // its source, such as "Cluster.PodCIDRs"

	// Within is the text of another entry that covers all that this one covers, as
	// Go reads it. [List.String] leaves such an entry out. "" if there is no such entry.
	Within string `json:"within,omitempty"`

	// Skipped says why no list is given the entry. "" if it is not skipped.
	Skipped string `json:"skipped,omitempty"`
}

// List is a no_proxy list whose entries name their sources. The nil List is empty.
// Methods don't change it, so they are safe for concurrent use.
type List []Entry

// ParseList splits a list at commas and drops empty items. It does not check the
// items. from is the source of all of them.
func ParseList(list, from string) List {
	var l List
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			l = append(l, Entry{Text: item, From: from})
		}
	}
	return l
}

// String returns the list for a Go program: the entries that are neither skipped nor
// within another, separated by commas. Like [Rules.String] it hides nothing.
func (l List) String() string {
	var items []string
	for _, e := range l {
		if e.Within == "" && e.Skipped == "" {
			items = append(items, e.Text)
		}
	}
	return strings.Join(items, ",")
}

// Merge returns a new List with the entries of all lists in their order. For Go it
// covers what the lists cover together.
//
// An entry that another one covers gets that one's text as Within: an address within
// a network, a name below a name, the same with a port, an entry given twice. The
// item "*" is the exception. The others are kept beside it, so that the list is
// complete when somebody removes it. An entry that covers nothing is kept too. The
// time grows with the square of the number of entries.
func Merge(lists ...List) List {
	merged := slices.Concat(lists...)
	entries := make([]entry, len(merged))
	for i := range merged {
		merged[i].Within = ""
		if merged[i].Skipped == "" {
			entries[i] = parseEntry(merged[i].Text)
		}
	}
	// Entry i is within j if j covers more, or covers the same and comes first.
	within := func(i, j int) bool {
		return i != j && entries[j].includes(entries[i]) && (j < i || !entries[i].includes(entries[j]))
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

// includes reports whether e covers all that o covers. For Merge, "*" includes only
// "*".
func (e entry) includes(o entry) bool {
	if e.kind != o.kind || e.port != "" && e.port != o.port {
		return false
	}
	switch e.kind {
	case everything:
		return true
	case addresses:
		// A network of IPv6 does not cover the IPv4 addresses mapped into it.
		return e.network.Bits() <= o.network.Bits() && e.network.Contains(o.network.Addr())
	case domain:
		if e.name == o.name {
			return e.apex || !o.apex
		}
		return strings.HasSuffix(o.name, "."+e.name)
	}
	return false
}

// JVM returns the list as a value of http.nonProxyHosts, and a [Finding] for each entry that
// a JVM can't be told exactly. Findings refer to entries by their index in the List.
//
// Each entry is written in the spelling that the JVM reads best. If it would read the entry
// as something else, that is left out: then its hosts go through the proxy, which people
// notice, as they would not notice a connection around the proxy. A network of IPv4 may
// cover a little more, and gets a Finding: the JVM reads it as the beginning of a text.
func (l List) JVM() (string, []Finding) {
	r := renderer{list: l, shown: redactItems(l.texts())}
	for i := range l {
		r.renderEntry(i)
	}
	return strings.Join(r.items, JVM.separator()), r.findings
}

func (l List) texts() (texts []string) {
	for _, e := range l {
		texts = append(texts, e.Text)
	}
	return texts
}

type renderer struct {
	list     List
	shown    []string // the texts without credentials
	items    []string
	findings []Finding
}

func (r *renderer) renderEntry(i int) {
	e := r.list[i]
	if e.Skipped != "" {
		r.addFinding(i, "is not given it: "+e.Skipped, "it into Extra if that is meant")
		return
	}
	if reason := itemFault(strings.TrimSpace(e.Text)); reason != "" {
		r.addFinding(i, "is not given what covers nothing", "it differently: "+reason)
		return
	}
	s := JVM.bestSpelling(e.Text)
	for _, item := range s.items {
		if !slices.Contains(r.items, item) {
			r.items = append(r.items, item)
		}
	}
	given := "is given " + s.quoteItems(JVM.separator())
	switch s.reading {
	case unusable:
		r.addFinding(i, "cannot be told"+s.missedText(), JVM.spellingAdvice(e.Text))
	case wider:
		r.addFinding(i, given+", which "+s.wider, "the addresses one by one if such names must use the proxy")
	case narrower:
		r.addFinding(i, given+s.missedText(), JVM.spellingAdvice(e.Text))
	}
}

func (r *renderer) addFinding(i int, does, write string) {
	if r.shown[i] != r.list[i].Text {
		does, write = "does not read a URL or credentials", "the host alone"
	}
	r.findings = append(r.findings, Finding{Index: i, Text: r.shown[i], Consumer: JVM, Does: does, Write: write})
}
