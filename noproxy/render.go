package noproxy

import (
	"fmt"
	"slices"
	"strings"
)

// For returns the list as the consumer has to be given it, and findings for
// what cannot be said to it. For the JVM that is the value of
// http.nonProxyHosts, for all others the value of no_proxy.
//
// Each entry is written in the spelling that the consumer reads best. One that
// it would read as something else is left out: its hosts go through the proxy,
// which shows, while a connection around the proxy would not. Two exceptions
// cover a little more, and have a finding: ".example.com" includes the name
// itself for some, and a network is a prefix of text for the JVM.
//
// Loopback, which Go implies, is not added: lists of a [Cluster] have it.
//
// Entries within another one are written where the consumer cannot read that
// one: of a network that wget does not understand the addresses of the
// API server and of the DNS remain. Findings refer to entries by their index in
// the List.
func (l List) For(c Consumer) (string, []Finding) {
	r := renderer{list: l, consumer: c}
	r.shown = redactItems(r.texts())
	if i := slices.IndexFunc(l, Entry.isEverything); i >= 0 && c.onlyAlone() {
		if len(l) > 1 {
			r.find(i, "reads it only as the whole list, so the other entries, which add nothing, are left out", "no \"*\"")
		}
		return "*", r.findings
	}
	for i, e := range l {
		if e.Within == "" {
			r.entry(i)
		}
	}
	for i, e := range l {
		if e.Within != "" && !r.covered(e.Text) {
			r.entry(i)
		}
	}
	slices.SortStableFunc(r.findings, func(a, b Finding) int { return a.Index - b.Index })
	return strings.Join(r.items, c.separator()), r.findings
}

type renderer struct {
	list     List
	consumer Consumer
	shown    []string // texts without credentials
	items    []string
	findings []Finding
}

func (r *renderer) texts() []string {
	texts := make([]string, len(r.list))
	for i, e := range r.list {
		texts[i] = e.Text
	}
	return texts
}

func (r *renderer) entry(i int) {
	e := r.list[i]
	if e.Skipped != "" {
		r.find(i, "is not given it: "+e.Skipped, "it into Extra if that is meant")
		return
	}
	if reason := (Options{}).fault(strings.TrimSpace(e.Text)); reason != "" {
		r.find(i, "is not given what covers nothing", "it differently: "+reason)
		return
	}
	s := r.consumer.spell(e.Text)
	for _, item := range s.items {
		if !slices.Contains(r.items, item) {
			r.items = append(r.items, item)
		}
	}
	given := "is given " + s.quote(r.consumer.separator())
	switch s.reading {
	case nowhere:
		r.find(i, "cannot be told"+s.andProxies(), r.consumer.advice(e.Text))
	case wider:
		r.find(i, given+", which "+s.wider, r.consumer.narrowAdvice(e.Text))
	case narrower:
		if s.over != nil {
			given += ", which " + s.wider
		}
		r.find(i, given+s.andProxies(), r.consumer.advice(e.Text))
	}
}

// covered reports whether what is written so far covers what an entry does.
func (r *renderer) covered(text string) bool {
	match := r.consumer.compile(strings.Join(r.items, ","))
	rules := Options{NoImpliedLoopback: true}.compile(text)
	for _, p := range probes(text) {
		t := newTarget(p.host, p.port)
		if rules.Bypass(p.host, t.port) && !match(t) {
			return false
		}
	}
	return true
}

func (r *renderer) find(i int, does, write string) {
	if r.shown[i] != r.list[i].Text {
		does, write = "does not read a URL or credentials", "the host alone"
	}
	r.findings = append(r.findings, Finding{Index: i, Text: r.shown[i], Consumer: r.consumer, Does: does, Write: write})
}

// onlyAlone reports whether the consumer reads "*" as the whole list only.
func (c Consumer) onlyAlone() bool {
	t := newTarget("host.example", "https")
	return c.compile("*")(t) && !c.compile("a.example,*")(t)
}

// narrowAdvice is for an entry that the consumer reads as covering more.
func (c Consumer) narrowAdvice(text string) string {
	if e := parseEntry(text); e.kind == domain {
		return fmt.Sprintf("the names below %q one by one if the name itself must use the proxy", e.name)
	}
	return "the addresses one by one if such names must use the proxy"
}

func (e Entry) isEverything() bool {
	return e.Skipped == "" && parseEntry(e.Text).kind == everything
}
