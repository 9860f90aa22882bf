package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// state is how well a cluster can be reached. The greater, the worse.
type state int

const (
	healthy     state = iota
	oneReplica        // one replica holds it, though there are others
	dialsFail         // some of its dials fail
	draining          // all its sessions drain
	unreachable       // it has no session
	states
)

// stateText shows a state: its key in URLs, a word, a sign that needs no colour, and what
// it means.
type stateText struct{ Key, Word, Sign, Means string }

var stateTexts = [states]stateText{
	healthy:     {"ok", "OK", "✓", "at least two replicas hold it, or there is only one"},
	oneReplica:  {"alone", "One replica", "1", "only one of several replicas holds it: it is lost while that one restarts"},
	dialsFail:   {"failing", "Dials fail", "!", "5% of the dials of the last minutes failed, or more, without those that the agent's policy denied"},
	draining:    {"draining", "Draining", "→", "its sessions take no new connections"},
	unreachable: {"down", "No agent", "✕", "no connection can be made"},
}

// isReachable reports whether new connections can be made.
func (s state) isReachable() bool { return s < draining }

// classify returns the state of the cluster, when takers replicas take new streams.
func (b *fleetRecord) classify(c *clusterRecord, takers int) state {
	homes := map[string]bool{}
	for i := range c.sessions {
		if !c.sessions[i].Leaving {
			homes[c.sessions[i].Holder] = true
		}
	}
	switch {
	case len(c.sessions) == 0:
		return unreachable
	case len(homes) == 0:
		return draining
	case c.dials.Failed > 0 && c.dials.Failed*20+c.dials.Denied >= c.dials.Dials:
		return dialsFail
	case takers > 1 && len(homes) == 1:
		return oneReplica
	}
	return healthy
}

// problemText says what is wrong, in addition to the state's word.
func (b *fleetRecord) problemText(c *clusterRecord) string {
	switch c.state {
	case unreachable:
		return b.absenceText(c)
	case draining:
		return "It takes no new connections: all its sessions drain."
	case dialsFail:
		text := fmt.Sprintf("%d of %d dials failed in the last minutes.", c.dials.Failed, c.dials.Dials-min(c.dials.Denied, c.dials.Dials))
		if last := b.lastFailure(c.name); last != nil {
			text += " The last one: " + last.Text + "."
		}
		return text
	case oneReplica:
		i := slices.IndexFunc(c.sessions, func(s session) bool { return !s.Leaving })
		return "Only " + c.sessions[i].Holder + " holds it: it is lost while that replica restarts."
	}
	return ""
}

// absenceText says since when a cluster has no agent, as far as was seen.
func (b *fleetRecord) absenceText(c *clusterRecord) string {
	left, exact := c.leftAt()
	ago, clock := formatDuration(b.at.Sub(left)), formatTime(left, b.at)
	var text string
	switch {
	case exact:
		text = fmt.Sprintf("Gone for %s, since %s.", ago, clock)
	case !left.IsZero():
		text = fmt.Sprintf("An agent was last seen %s ago, at %s.", ago, clock)
	case c.known:
		text = fmt.Sprintf("Gone since before this page was first opened, at %s.", formatTime(b.began, b.at))
	default: // addFailingClusters
		text = fmt.Sprintf("No replica that answers knows of an agent. Dials fail, the last one %s ago.", formatDuration(b.at.Sub(c.lastSeen)))
	}
	var silent []string
	held := c.lastReplicas()
	for _, r := range b.replicas {
		if !r.Connected && slices.Contains(held, r.Name) {
			silent = append(silent, r.Name)
		}
	}
	if len(silent) > 0 {
		return text + " It was on " + strings.Join(silent, " and ") + ", which can't be reached."
	}
	return text
}

// compareReplicas sorts replicas in trouble first.
func compareReplicas(a, b replica) int {
	return cmp.Or(cmp.Compare(replicaRank(&a), replicaRank(&b)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address))
}

func replicaRank(r *replica) int {
	switch {
	case !r.Connected:
		return 0
	case r.Draining:
		return 1
	}
	return 2
}

// compareTrouble sorts the worst first, and clusters without an agent by when
// they lost it, the latest first: operators look for what has just happened.
func compareTrouble(a, b *clusterRecord) int {
	order := cmp.Compare(b.state, a.state)
	if order == 0 && a.state >= draining {
		left, _ := a.leftAt()
		later, _ := b.leftAt()
		order = later.Compare(left)
	}
	return cmp.Or(order, cmp.Compare(a.name, b.name))
}

// headlineNote is a sentence of the headline. URL is its subject's page.
type headlineNote struct {
	Sign, Text, URL string
}

// headlineNotes returns the sentences for a look of five seconds, those of others among
// them, and the key of the worst state.
func (b *fleetRecord) headlineNotes(others []string) (notes []headlineNote, key string) {
	var silent, leaving []string
	for _, r := range b.replicas {
		switch {
		case !r.Connected:
			silent = append(silent, r.Title())
		case r.Draining:
			leaving = append(leaving, r.Title())
		}
	}
	key = stateTexts[healthy].Key
	add := func(of state, url, format string, args ...any) {
		notes = append(notes, headlineNote{stateTexts[of].Sign, fmt.Sprintf(format, args...), url})
		if key == stateTexts[healthy].Key {
			key = stateTexts[of].Key
		}
	}
	_, counts := b.findClusters(query{})
	clusters := func(of state, one, more string) {
		if n := counts[of]; n == 1 {
			add(of, stateLink(of), "1 of %s %s", formatCount(len(b.clusters), "cluster"), one+b.clusterNames(of, n))
		} else if n > 1 {
			add(of, stateLink(of), "%d of %d clusters %s", n, len(b.clusters), more+b.clusterNames(of, n))
		}
	}
	clusters(unreachable, "has no agent", "have no agent")
	if len(silent) > 0 {
		add(unreachable, "#replicas", "%s can't be reached.", replicaNames(silent))
	}
	clusters(draining, "drains and takes no new connections", "drain and take no new connections")
	clusters(dialsFail, "has dials that fail", "have dials that fail")
	for _, text := range others {
		add(dialsFail, "", "%s", text)
	}
	switch {
	case len(b.clusters) == 0 && len(silent) == 0: // a silent replica may have agents
		add(healthy, "", "No agent has connected yet.")
	case len(notes) == 0:
		add(healthy, "", "Every cluster can be reached: %d.", len(b.clusters))
	}
	if len(leaving) > 0 {
		add(draining, "#replicas", "%s: draining, the agents move to other replicas.", replicaNames(leaving))
	}
	clusters(oneReplica, "is held by only one replica", "are held by only one replica each")
	return notes, key
}

// stateLink is the URL of the clusters of a state.
func stateLink(s state) string { return query{State: stateTexts[s].Key}.link() + "#clusters" }

// clusterNames ends a sentence with the names of a state's clusters, if they are
// few.
func (b *fleetRecord) clusterNames(s state, n int) string {
	if n > maxNamed {
		return "."
	}
	found, _ := b.findClusters(query{State: stateTexts[s].Key})
	names := make([]string, len(found))
	for i, c := range found {
		names[i] = c.name
	}
	return ": " + strings.Join(names, ", ") + "."
}

// maxNamed is how many names a sentence has room for.
const maxNamed = 3

// replicaNames names a few replicas, and counts many.
func replicaNames(names []string) string {
	switch n := len(names); {
	case n == 1:
		return "Replica " + names[0]
	case n <= maxNamed:
		return "Replicas " + strings.Join(names, ", ")
	default:
		return fmt.Sprintf("%d replicas", n)
	}
}
