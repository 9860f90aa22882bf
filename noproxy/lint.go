package noproxy

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Finding is an entry that a consumer does not read as Go does, or that it can't be
// told exactly. It has no credentials in it, whatever is in the list.
type Finding struct {
	Index    int      `json:"index"`    // of the entry, from 0; -1: the list as a whole
	Text     string   `json:"text"`     // the entry; "": the list as a whole
	Consumer Consumer `json:"consumer"` // the one that reads it differently
	Does     string   `json:"does"`     // what the consumer does, for a human
	Write    string   `json:"write"`    // what to write instead, for a human
}

// String returns the finding in one line.
func (f Finding) String() string {
	if f.Index < 0 {
		return fmt.Sprintf("%v: %s; write %s", f.Consumer, f.Does, f.Write)
	}
	return fmt.Sprintf("%v: entry %d %q: %s; write %s", f.Consumer, f.Index, f.Text, f.Does, f.Write)
}

// Lint returns what the consumers read differently from Go, that is from [Parse].
// Without consumers it asks all of them. For Go itself it reports the entries that
// cover nothing. There is at most one Finding for an entry and a consumer. They are
// sorted by entry, then in the order of consumers.
//
// Each entry is tried with hosts that it covers and with their neighbours, with the
// port in the URL and without. If there is no Finding, the consumers agree with Go
// about all hosts, with these exceptions unless an entry is about them: an
// IPv4-mapped address, an address with a zone or in an unusual spelling (010.0.0.1),
// a name with a dot at the end, a name that is not ASCII or begins with "127.",
// 0.0.0.0, and addresses of 127.0.0.0/8 other than 127.0.0.1.
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
			l.checkConsumer(c)
		}
	}
	slices.SortStableFunc(l.findings, func(a, b Finding) int { return cmp.Compare(a.Index, b.Index) })
	return l.findings
}

type linter struct {
	list         string
	items, shown []string
	rules        *Rules
	star         int // the first item "*", or -1
	findings     []Finding
}

func (l *linter) checkConsumer(c Consumer) {
	match := c.newMatcher(l.list)
	found := make(map[int]bool)
	for _, host := range []string{"localhost", "127.0.0.1", "::1"} {
		if !match(newTarget(host, "https")) {
			l.addFinding(-1, c, "sends "+host+" through the proxy unless it is listed", c.loopbackText())
			break
		}
	}
	for i := range l.items {
		if l.isRedacted(i) {
			l.addFinding(i, c, "makes no sense of a URL or of credentials", "the host alone")
			found[i] = true // compareItem must not quote it
		}
	}
	for i, item := range l.items {
		if l.isRedacted(i) {
			continue
		}
		if reason := itemFault(strings.TrimSpace(item)); c == Go && reason != "" && strings.TrimSpace(l.list) != "" {
			l.addFinding(i, c, "covers nothing with it", "it differently: "+reason)
		}
		if c != Go {
			l.compareItem(i, c, match, found)
		}
	}
}

// compareItem asks the questions of item i. If consumer and Go differ, it adds a
// Finding for the item that makes the difference, which may be another one.
func (l *linter) compareItem(i int, c Consumer, match matcher, found map[int]bool) {
	alone := c.newMatcher(l.items[i])
	rules, implied := Parse(l.items[i]), c.newMatcher("")
	for _, p := range itemQuestions(l.items[i]) {
		t := newTarget(p.host, p.port)
		got, want := match(t), l.rules.Bypass(p.host, t.port)
		if got == want || isLoopback(p.host) || got && implied(t) {
			continue
		}
		blamed := i
		if alone(t) == rules.Bypass(p.host, t.port) {
			blamed = l.decidingItem(i, p.host, t.port)
		}
		if !found[blamed] {
			found[blamed] = true
			l.addFinding(blamed, c, describeDifference(p, got), c.spellingAdvice(l.items[blamed]))
		}
	}
}

// decidingItem returns the item that decides for Go, or i if none does.
func (l *linter) decidingItem(i int, host, port string) int {
	if l.star >= 0 {
		return l.star
	}
	if e := l.rules.Explain(host, port); e.Index >= 0 {
		return e.Index
	}
	return i
}

// isRedacted reports whether an item may have credentials.
func (l *linter) isRedacted(i int) bool { return l.shown[i] != l.items[i] }

func isLoopback(host string) bool {
	addr, ok := parseAddr(host)
	return host == "localhost" || ok && addr.IsLoopback()
}

func (l *linter) addFinding(i int, c Consumer, does, write string) {
	f := Finding{Index: i, Consumer: c, Does: does, Write: write}
	if i >= 0 {
		f.Text = strings.TrimSpace(l.shown[i])
	}
	l.findings = append(l.findings, f)
}

// describeDifference says what the consumer does with a host, and that Go does the
// opposite.
func describeDifference(p question, direct bool) string {
	if direct {
		return fmt.Sprintf("connects directly to %v, which Go sends through the proxy", p)
	}
	return fmt.Sprintf("sends %v through the proxy, where Go connects directly", p)
}

// loopbackText returns the items for localhost and the loopback addresses.
func (c Consumer) loopbackText() string {
	return strings.Join(append([]string{"localhost", "127.0.0.1"}, c.bestSpelling("::1").items...), ",")
}

// spellingAdvice says what to write so that the consumer reads an item as Go does.
func (c Consumer) spellingAdvice(item string) string {
	item = strings.TrimSpace(item)
	if reason := itemFault(item); reason != "" {
		return "it differently: " + reason
	}
	e := parseEntry(item)
	s := c.bestSpelling(item)
	text, how := s.quoteItems(c.separator()), s.reading
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
		return fmt.Sprintf("%q if every port may be reached directly", e.withoutPort())
	case how == wider && e.kind == domain:
		return fmt.Sprintf("%q if the name itself may be reached directly", e.name)
	case how == wider:
		return text + " for it, which " + s.wider
	}
	if !e.network.IsSingleIP() && c.bestSpelling(e.network.Addr().String()).reading == exact {
		return "the addresses that matter, one by one"
	}
	return "nothing for it: there is no way to say it"
}

// withoutPort returns what e covers without its port.
func (e entry) withoutPort() string {
	switch {
	case e.kind == addresses:
		return e.network.Addr().String()
	case e.apex:
		return e.name
	}
	return "." + e.name
}

// separator returns what separates the items in the consumer's own setting.
func (c Consumer) separator() string {
	if c == JVM {
		return "|"
	}
	return ","
}

// question is a host and a port that readings of an item may disagree about.
type question struct{ host, port string }

// String returns the question in the form of a URL or an address.
func (p question) String() string {
	host := p.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if p.port == "http" || p.port == "https" {
		return p.port + "://" + host + "/"
	}
	return host + ":" + p.port
}

// itemQuestions returns the questions about an item, in an order that never changes:
// hosts that it covers, and neighbours that it should not cover.
func itemQuestions(item string) []question {
	ps := entryQuestions(parseEntry(item))
	if itemFault(strings.TrimSpace(item)) != "" {
		ps = invalidItemQuestions(item)
	}
	if strings.Contains(item, ":") {
		ps = append(ps, colonQuestions(item)...)
	}
	return slices.DeleteFunc(ps, func(p question) bool { return !p.isPossible() })
}

// isPossible reports whether a host can have that name or address.
func (p question) isPossible() bool {
	if _, err := netip.ParseAddr(p.host); err == nil {
		return true
	}
	return p.host != "" && isASCII(p.host) && nameFault(strings.ToLower(p.host), true) == ""
}

func entryQuestions(e entry) []question {
	var hosts []string
	switch e.kind {
	case everything:
		hosts = []string{"host.example", "203.0.113.1", "2001:db8::cafe"}
	case addresses:
		hosts = questionAddrs(e.network)
	case domain:
		hosts = questionNames(e.name)
	}
	var ps []question
	for _, host := range hosts {
		for _, port := range questionPorts(e.port) {
			ps = append(ps, question{host, port})
		}
	}
	return ps
}

// questionPorts returns the ways to write the port of an item, and another port.
func questionPorts(port string) []string {
	switch port {
	case "":
		return []string{"https", "8443"}
	case "80":
		return []string{"80", "http", "8443"}
	case "443":
		return []string{"443", "https", "8443"}
	}
	return []string{port, "https", "http"}
}

func questionNames(name string) []string {
	if name == "" {
		return []string{"host.example.", "host.example"}
	}
	hosts := []string{"www." + name, "a.b." + name, name, "not" + name, "10." + name}
	if rooted, ok := strings.CutSuffix(name, "."); ok {
		hosts = append(hosts, rooted, "www."+rooted)
	}
	return hosts
}

// questionAddrs returns addresses in a network and next to it.
func questionAddrs(network netip.Prefix) []string {
	first, last := network.Addr(), lastAddr(network)
	hosts := []string{first.String()}
	if first != last {
		hosts = append(hosts, last.String(), first.Next().String(), last.Prev().String())
		if first.Is4() {
			// A name that begins like the addresses.
			hosts = append(hosts, strings.TrimSuffix(textPatterns(network)[0], "*")+"host.example")
		}
	}
	for _, a := range []netip.Addr{first.Prev(), last.Next()} {
		if a.IsValid() {
			hosts = append(hosts, a.String())
		}
	}
	return hosts
}

// invalidItemQuestions are about an item that covers nothing for Go. Other consumers
// may read it as several items, as a pattern or as an address.
func invalidItemQuestions(item string) []question {
	var ps []question
	split := func(r rune) bool { return unicode.IsSpace(r) || r == '|' }
	for _, word := range append(strings.FieldsFunc(item, split), item) {
		e, ok := networkPort(strings.ToLower(word))
		if !ok {
			e = parseEntry(foldItem(trimBrackets(word)))
		}
		ps = append(ps, entryQuestions(e)...)
		if e.kind == domain {
			ps = append(ps, patternQuestions(e.name)...)
			ps = append(ps, patternQuestions(word)...) // its "*." is not in the name
		}
		network, _, _ := strings.Cut(word, "/")
		if addr, ok := parseAton(network); ok {
			ps = append(ps, question{netip.AddrFrom4(addr).String(), "https"})
		}
		if host, port, err := net.SplitHostPort(word); err == nil {
			ps = append(ps, question{host, port}, question{strings.TrimLeft(host, "."), "https"})
		}
		ps = append(ps, colonQuestions(word)...)
	}
	return ps
}

// patternQuestions replace the asterisks of a pattern.
func patternQuestions(name string) []question {
	if !strings.Contains(name, "*") {
		return nil
	}
	var ps []question
	for _, fill := range []string{"a", "", "1", "1.2", "1.2.3", "a."} {
		ps = append(ps, question{strings.ReplaceAll(name, "*", fill), "https"})
	}
	return ps
}

// colonQuestions are for consumers that end an item at a colon and read the digits
// after it as a port. The remaining parts may cover names or IPv4 addresses.
func colonQuestions(item string) []question {
	var ps []question
	if i := strings.LastIndexByte(item, ':'); isDigits(item[i+1:]) {
		ps = append(ps, question{strings.Trim(item[:max(i, 0)], "[]"), item[i+1:]})
	}
	parts := strings.Split(item, ":")
	for i, part := range parts {
		ports := []string{"https"}
		if i+1 < len(parts) {
			next := parts[i+1]
			if digits := next[:len(next)-len(strings.TrimLeft(next, "0123456789"))]; digits != "" {
				ports = append(ports, digits)
			}
		}
		for _, text := range []string{part, strings.TrimLeft(part, "0123456789")} {
			for _, port := range ports {
				ps = append(ps, remainderQuestions(strings.TrimLeft(text, "."), port)...)
			}
		}
	}
	return ps
}

// remainderQuestions are a name, a name below it, and an IPv4 address that ends in
// it.
func remainderQuestions(text, port string) []question {
	ps := []question{{text, port}, {"www." + text, port}}
	if missing := 3 - strings.Count(text, "."); missing > 0 {
		octets := []string{"203", "0", "113"}[:missing]
		ps = append(ps, question{strings.Join(append(octets, text), "."), port})
	}
	return ps
}
