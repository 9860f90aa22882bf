package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A state is how a cluster fares. The greater, the worse.
type state int

const (
	fine    state = iota
	alone         // one replica holds it, though there are others
	failing       // some of its dials fail
	leaving       // all its sessions drain
	down          // it has no session
	states
)

// stateTexts are the key in URLs, the word, a sign that needs no colour, and
// what it means.
var stateTexts = [states]struct{ key, word, sign, means string }{
	fine:    {"ok", "OK", "✓", "at least two replicas hold it, or there is one alone"},
	alone:   {"alone", "One replica", "1", "one replica holds it, though there are others: lost while that one restarts"},
	failing: {"failing", "Dials fail", "!", "5% of the dials of the last minutes failed, or more"},
	leaving: {"draining", "Draining", "→", "its sessions take no new connections"},
	down:    {"down", "No agent", "✕", "no connection can be made"},
}

// dialable: new connections can be made.
func (s state) dialable() bool { return s < leaving }

// judge says how the cluster fares at a step, where that many replicas take
// streams.
func (c *record) judge(step int64, takers int) state {
	homes := map[string]bool{}
	for i := range c.held {
		if !c.held[i].leaving {
			homes[c.held[i].replica] = true
		}
	}
	dials, failed := c.past.dialed(step)
	switch {
	case len(c.held) == 0:
		return down
	case len(homes) == 0:
		return leaving
	case failed > 0 && failed*20 >= dials:
		return failing
	case takers > 1 && len(homes) == 1:
		return alone
	}
	return fine
}

// problem says in words what is wrong, beside the state's own word.
func (b *book) problem(c *record) string {
	switch c.state {
	case down:
		return b.absence(c)
	case leaving:
		return "No new connection is taken: what holds it is draining."
	case failing:
		dials, failed := c.past.dialed(b.index())
		return fmt.Sprintf("%d of %d dials failed in the last %s.", failed, dials, duration(b.span()))
	case alone:
		i := slices.IndexFunc(c.held, func(s session) bool { return !s.leaving })
		return "Only " + c.held[i].replica + " holds it: lost while that restarts."
	}
	return ""
}

// absence says since when a cluster has no agent, as far as was seen.
func (b *book) absence(c *record) string {
	text := "Gone since before this page began to look."
	if !c.up.IsZero() {
		text = fmt.Sprintf("Gone for %s, since %s.", duration(b.at.Sub(c.up)), clock(c.up, b.at))
	}
	var silent []string
	for _, r := range b.replicas {
		if !r.Connected && slices.Contains(c.homes, r.Name) {
			silent = append(silent, r.Name)
		}
	}
	if len(silent) > 0 {
		return text + " It was on " + strings.Join(silent, " and ") + ", which can't be reached."
	}
	return text
}

// span is how far back the history goes.
func (b *book) span() time.Duration { return min(slots*b.step, max(b.at.Sub(b.began), b.step)) }

// byReplica puts trouble first.
func byReplica(a, b replica) int {
	return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address))
}

func rank(r *replica) int {
	switch {
	case !r.Connected:
		return 0
	case r.Draining:
		return 1
	}
	return 2
}

// byTrouble puts the worst first, and of those without an agent the latest:
// what has just happened is what somebody looks for.
func byTrouble(a, b *record) int {
	order := cmp.Compare(b.state, a.state)
	if order == 0 && a.state >= leaving {
		order = b.up.Compare(a.up)
	}
	return cmp.Or(order, cmp.Compare(a.name, b.name))
}

// A note is a sentence of the headline; URL leads to what it is about.
type note struct {
	Sign, Text, URL string
}

// headline is what somebody must know who looks for five seconds, and the key
// of the worst of it.
func (b *book) headline() (notes []note, key string) {
	var silent, draining []string
	for _, r := range b.replicas {
		switch {
		case !r.Connected:
			silent = append(silent, name(r.Name, r.Address))
		case r.Draining:
			draining = append(draining, name(r.Name, r.Address))
		}
	}
	key = stateTexts[fine].key
	add := func(of state, url, format string, args ...any) {
		notes = append(notes, note{stateTexts[of].sign, fmt.Sprintf(format, args...), url})
		if key == stateTexts[fine].key {
			key = stateTexts[of].key
		}
	}
	counts := b.counts()
	clusters := func(of state, one, more string) {
		if n := counts[of]; n == 1 {
			add(of, link(of), "1 of %s %s", plural(len(b.clusters), "cluster"), one+b.names(of, n))
		} else if n > 1 {
			add(of, link(of), "%d of %d clusters %s", n, len(b.clusters), more+b.names(of, n))
		}
	}
	clusters(down, "has no agent", "have no agent")
	if len(silent) > 0 {
		add(down, "#replicas", "%s can't be reached.", some(silent))
	}
	clusters(leaving, "drains and takes no new connections", "drain and take no new connections")
	clusters(failing, "has dials that fail", "have dials that fail")
	switch {
	case len(b.clusters) == 0:
		add(fine, "", "No agent has connected yet.")
	case len(notes) == 0:
		add(fine, "", "Every cluster can be reached: %d.", len(b.clusters))
	}
	if len(draining) > 0 {
		add(leaving, "#replicas", "%s: draining, the agents move to others.", some(draining))
	}
	clusters(alone, "is held by one replica alone", "are held by one replica alone")
	return notes, key
}

// link leads to the clusters of a state.
func link(s state) string { return query{State: stateTexts[s].key}.link() + "#clusters" }

// names ends a sentence with the names of a state's clusters, if they are few.
func (b *book) names(s state, n int) string {
	if n > few {
		return "."
	}
	found, _ := b.find(query{State: stateTexts[s].key})
	names := make([]string, len(found))
	for i, c := range found {
		names[i] = c.name
	}
	return ": " + strings.Join(names, ", ") + "."
}

// few is how many names a sentence has room for.
const few = 3

// some names a few, and counts many.
func some(names []string) string {
	switch n := len(names); {
	case n == 1:
		return "Replica " + names[0]
	case n <= few:
		return "Replicas " + strings.Join(names, ", ")
	default:
		return fmt.Sprintf("%d replicas", n)
	}
}

func name(name, address string) string { return cmp.Or(name, address, "without a name") }

func (b *book) counts() (counts [states]int) {
	for _, c := range b.clusters {
		counts[c.state]++
	}
	return counts
}
