package noproxy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Finding is something that a consumer does not read as Go does, or that could
// not be said to it. It holds no credentials, whatever is in the list.
type Finding struct {
	Index    int      `json:"index"`    // of the entry, from 0; -1 is the list as a whole
	Text     string   `json:"text"`     // of the entry; "" for the list as a whole
	Consumer Consumer `json:"consumer"` // who reads it differently
	Does     string   `json:"does"`     // what it does instead; for a human
	Write    string   `json:"write"`    // what to write; for a human
}

// String returns the finding in a line.
func (f Finding) String() string {
	if f.Index < 0 {
		return fmt.Sprintf("%v: %s; write %s", f.Consumer, f.Does, f.Write)
	}
	return fmt.Sprintf("%v: entry %d %q: %s; write %s", f.Consumer, f.Index, f.Text, f.Does, f.Write)
}

// Lint returns what the consumers, or all of them if none are given, read
// differently from Go, that is from [Parse]. There is at most one Finding for an
// entry and a consumer. They are sorted by entry, then as consumers are. For
// Go itself it reports the entries that cover nothing.
//
// Each entry is tried with hosts that it covers and with their neighbours, with
// the port written and left to the scheme. If there is no Finding, the consumers
// agree with Go about all hosts but those that no entry is about: an IPv4-mapped
// address, an address with a zone or in an unusual spelling (010.0.0.1), a
// name with a dot at the end, a name that is not ASCII or begins with "127.",
// 0.0.0.0 and addresses of 127.0.0.0/8 other than 127.0.0.1.
//
// The time grows with the square of the list: for all consumers a hundred
// entries take some 50 ms, a thousand take seconds.
func Lint(list string, consumers ...Consumer) []Finding {
	if len(consumers) == 0 {
		consumers = Consumers()
	}
	items := strings.Split(list, ",")
	l := linter{list: list, items: items, shown: redactItems(items), rules: Parse(list)}
	l.star = slices.IndexFunc(items, func(item string) bool { return strings.TrimSpace(item) == "*" })
	for i, c := range consumers {
		if !slices.Contains(consumers[:i], c) {
			l.lint(c)
		}
	}
	slices.SortStableFunc(l.findings, func(a, b Finding) int { return cmp.Compare(a.Index, b.Index) })
	return l.findings
}

type linter struct {
	list         string
	items, shown []string
	rules        *Rules
	star         int // the first lone "*", or -1
	findings     []Finding
}

func (l *linter) lint(c Consumer) {
	match := c.compile(l.list)
	found := make(map[int]bool)
	for _, host := range []string{"localhost", "127.0.0.1", "::1"} {
		if !match(newTarget(host, "https")) {
			l.add(-1, c, "sends "+host+" through the proxy unless it is listed", c.loopback())
			break
		}
	}
	for i := range l.items {
		if l.hidden(i) {
			l.add(i, c, "makes no sense of a URL or of credentials", "the host alone")
			found[i] = true // so that nobody quotes it
		}
	}
	for i, item := range l.items {
		if l.hidden(i) {
			continue
		}
		if reason := (Options{}).fault(strings.TrimSpace(item)); c == Go && reason != "" && strings.TrimSpace(l.list) != "" {
			l.add(i, c, "covers nothing with it", "it differently: "+reason)
		}
		if c != Go {
			l.compare(i, c, match, found)
		}
	}
}

// compare asks about one item and blames the item that made the difference.
func (l *linter) compare(i int, c Consumer, match matcher, found map[int]bool) {
	alone := c.compile(l.items[i])
	rules, implied := Parse(l.items[i]), c.compile("")
	for _, p := range probes(l.items[i]) {
		t := newTarget(p.host, p.port)
		got, want := match(t), l.rules.Bypass(p.host, t.port)
		if got == want || isLoopback(p.host) || got && implied(t) {
			continue
		}
		blamed := i
		if alone(t) == rules.Bypass(p.host, t.port) {
			blamed = l.decided(i, p.host, t.port)
		}
		if !found[blamed] {
			found[blamed] = true
			l.add(blamed, c, does(p, got), c.advice(l.items[blamed]))
		}
	}
}

// decided returns the item that decided for Go, or i if none did.
func (l *linter) decided(i int, host, port string) int {
	if l.star >= 0 {
		return l.star
	}
	if e := l.rules.Explain(host, port); e.Index >= 0 {
		return e.Index
	}
	return i
}

// hidden reports whether an item may hold credentials.
func (l *linter) hidden(i int) bool { return l.shown[i] != l.items[i] }

func isLoopback(host string) bool {
	n, ok := parseNumber(host)
	return host == "localhost" || ok && n.isLoopback()
}

func (l *linter) add(i int, c Consumer, does, write string) {
	f := Finding{Index: i, Consumer: c, Does: does, Write: write}
	if i >= 0 {
		f.Text = strings.TrimSpace(l.shown[i])
	}
	l.findings = append(l.findings, f)
}

// does says what the consumer does with a host where Go does the opposite.
func does(p probe, direct bool) string {
	if direct {
		return fmt.Sprintf("connects directly to %v, which Go sends through the proxy", p)
	}
	return fmt.Sprintf("sends %v through the proxy, where Go connects directly", p)
}

// loopback is what to list for a consumer that does not imply it.
func (c Consumer) loopback() string {
	return strings.Join(append([]string{"localhost", "127.0.0.1"}, c.spell("::1").items...), ",")
}

// advice says how to write an item so that the consumer reads it as Go does.
func (c Consumer) advice(item string) string {
	item = strings.TrimSpace(item)
	if reason := (Options{}).fault(item); reason != "" {
		return "it differently: " + reason
	}
	e := parseEntry(item)
	s := c.spell(item)
	text, how := s.quote(c.separator()), s.reading
	switch {
	case how == exact && e.kind != everything && text != strconv.Quote(item):
		return text + " for it"
	case how == exact && e.kind == everything:
		return `"*" for it, as the whole list`
	case how == exact:
		return "the entries of the list so that only commas separate them"
	case e.kind == everything:
		return "nothing for it, and set no proxy"
	case e.port != "":
		return fmt.Sprintf("%q if every port may be reached directly", e.bare())
	case how == wider && e.kind == domain:
		return fmt.Sprintf("%q if the name itself may be reached directly", e.name)
	case how == wider:
		return text + " for it, which " + s.wider
	}
	if e.span.first != e.span.last && c.spell(e.span.first.addr().String()).reading == exact {
		return "the addresses that matter, one by one"
	}
	return "nothing for it: there is no way to say it"
}

// bare returns what e covers without its port.
func (e entry) bare() string {
	switch {
	case e.kind == addresses:
		return e.span.first.addr().String()
	case e.apex:
		return e.name
	}
	return "." + e.name
}

// separator is what the consumer's own setting has between the items.
func (c Consumer) separator() string {
	if c == JVM {
		return "|"
	}
	return ","
}
