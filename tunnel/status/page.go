package status

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// page is the data of the template.
type page struct {
	Title    string
	Program  string // with its version
	Refresh  int    // seconds between updates
	At       string
	Query    query
	Key      string // the worst state's
	Headline []headlineNote
	Facts    []fact
	Replicas []replicaRow
	Filters  []filter
	Rows     []row
	Where    string // which rows of how many
	Previous string // URL; empty on the first page
	Next     string
	// Failures are those of the cluster, or the latest of all; AllFailures is how many
	// there are.
	Failures    []failureRow
	AllFailures int
	Refusals    []refusalRow
	Detail      *clusterDetail // the cluster that was asked for; nil: none was, or it is not known
}

type fact struct{ Name, Value string }

type replicaRow struct {
	Name, Address, URL string
	Zone               string
	Self               bool
	State              string // a class: ok, draining or down
	Sign, Word, Since  string
	Error              string
	Clusters, Sessions int
	Streams            int
}

type filter struct {
	Word, Means, URL string
	Key, Sign        string
	Count            int
	Current          bool
}

type row struct {
	Name, URL       string
	Key, Sign, Word string // the state's
	Problem, Error  string
	Agents          []agentRow
	LastReplicas    []string // where it was last, if it is nowhere
	More            int      // sessions that are not in Held
	Streams         int
	Trip            string
}

// agentRow is an agent and the replicas that its sessions are with.
type agentRow struct {
	Agent    string
	Sessions []heldBy
}

type heldBy struct {
	Replica, For string
	Leaving      bool
}

// buildPage makes the page that q asks for. The headline has the other notes, too.
func (b *fleetRecord) buildPage(q query, title, program string, others []string) *page {
	p := &page{
		Title: title, Program: program, Refresh: int(refreshInterval / time.Second), At: b.at.UTC().Format("2 Jan 2006 15:04:05 UTC"),
		Query: q,
	}
	p.Failures, p.AllFailures = b.failureRows(q.Cluster)
	p.Headline, p.Key = b.headlineNotes(others)
	if q.Cluster != "" {
		if c := b.clusters[q.Cluster]; c != nil {
			p.Detail = b.clusterDetail(c)
		}
		return p
	}
	p.Facts, p.Refusals = b.pageFacts(), b.refusalRows()
	for i := range b.replicas {
		p.Replicas = append(p.Replicas, newReplicaRow(&b.replicas[i], b.at))
	}
	found, counts := b.findClusters(q)
	p.Filters = newFilters(q, counts)
	p.showPage(b, found)
	return p
}

// showPage adds the clusters of one page: the last page if there are fewer.
func (p *page) showPage(b *fleetRecord, found []*clusterRecord) {
	q := p.Query
	q.Page = min(q.Page, max((len(found)+perPage-1)/perPage, 1))
	from := (q.Page - 1) * perPage
	to := min(from+perPage, len(found))
	for _, c := range found[from:to] {
		p.Rows = append(p.Rows, b.clusterRow(c))
	}
	switch {
	case len(found) == 0 && len(b.clusters) == 0:
		p.Where = "No replica that answers knows of a cluster."
	case len(found) == 0:
		p.Where = "No cluster matches."
	default:
		p.Where = fmt.Sprintf("%d to %d of %s", from+1, to, formatCount(len(found), "cluster"))
	}
	turn := func(by int) string {
		other := q
		other.Page += by
		return other.link()
	}
	if from > 0 {
		p.Previous = turn(-1)
	}
	if to < len(found) {
		p.Next = turn(1)
	}
}

func (b *fleetRecord) pageFacts() []fact {
	agents, sessions, streams, connected := 0, 0, 0, 0
	for _, c := range b.clusters {
		names := map[string]bool{}
		for i := range c.sessions {
			names[c.sessions[i].agentText()] = true
		}
		agents, sessions, streams = agents+len(names), sessions+len(c.sessions), streams+c.streams
		if c.state.isReachable() {
			connected++
		}
	}
	answering := 0
	for i := range b.replicas {
		if b.replicas[i].Connected {
			answering++
		}
	}
	return []fact{
		{"Clusters reachable", formatOf(connected, len(b.clusters))},
		{"Replicas answering", formatOf(answering, len(b.replicas))},
		{"Agents", strconv.Itoa(agents)},
		{"Sessions", strconv.Itoa(sessions)},
		{"Open streams", strconv.Itoa(streams)},
	}
}

func formatOf(n, all int) string { return fmt.Sprintf("%d of %d", n, all) }

func newReplicaRow(r *replica, now time.Time) replicaRow {
	v := replicaRow{
		Name: replicaName(r.Name, r.Address), Address: r.Address, Zone: r.Zone, Self: r.Self, Error: r.LastError, URL: query{Q: r.Name}.link(),
		Clusters: r.clusters, Sessions: r.sessions, Streams: r.streams,
		State: "ok", Sign: "✓", Word: "Answers",
	}
	switch {
	case !r.Connected:
		v.State, v.Sign, v.Word = "down", "✕", "Can't be reached"
	case r.Draining:
		v.State, v.Sign, v.Word = "draining", "→", "Draining"
	}
	if !r.Since.IsZero() {
		v.Since = formatTime(r.Since, now)
	}
	return v
}

func newFilters(q query, counts [states]int) []filter {
	all, bad := 0, 0
	for s, n := range counts {
		all += n
		if state(s) != healthy {
			bad += n
		}
	}
	add := func(f filter) filter {
		f.Current = q.State == f.Key
		f.URL = query{Q: q.Q, State: f.Key}.link()
		return f
	}
	filters := []filter{
		add(filter{Word: "All", Count: all, Means: "every cluster"}),
		add(filter{Key: notOK, Word: "Not OK", Count: bad, Means: "every cluster that is not OK"}),
	}
	for s := states - 1; s >= 0; s-- {
		t := stateTexts[s]
		filters = append(filters, add(filter{Key: t.key, Sign: t.sign, Word: t.word, Means: t.means, Count: counts[s]}))
	}
	return filters
}

// clusterRow shows a cluster as a row of the table.
func (b *fleetRecord) clusterRow(c *clusterRecord) row {
	t := stateTexts[c.state]
	v := row{
		Name: c.name, URL: query{Cluster: c.name}.link(), Key: t.key, Sign: t.sign, Word: t.word, Problem: b.problemText(c),
		Streams: c.streams, Trip: formatRoundTrip(c.roundTrip),
	}
	if len(c.errors) > 0 {
		v.Error = c.errors[0].Text
	}
	if len(c.sessions) == 0 {
		v.LastReplicas = c.lastReplicas()
	}
	v.Agents, v.More = c.agentSessions(b.at)
	return v
}

// agentSessions returns the agents and their sessions, as many as a row has room
// for, and how many more sessions there are.
func (c *clusterRecord) agentSessions(now time.Time) (holds []agentRow, more int) {
	const room = 4
	for i := range c.sessions {
		if i == room {
			return holds, len(c.sessions) - room
		}
		s := &c.sessions[i]
		at := slices.IndexFunc(holds, func(h agentRow) bool { return h.Agent == s.agentText() })
		if at < 0 {
			at = len(holds)
			holds = append(holds, agentRow{Agent: s.agentText()})
		}
		holds[at].Sessions = append(holds[at].Sessions, heldBy{s.replica, formatBrief(now.Sub(s.Since)), s.draining})
	}
	return holds, 0
}

// clusterDetail is the page of one cluster.
type clusterDetail struct {
	row
	Means    string
	Dials    string // of the last minutes
	Errors   []lastError
	Sessions []sessionRow
	Lost     []lostRow // who was connected last, if nobody is
}

type sessionRow struct {
	Key, Agent, Replica   string
	Program, Remote       string
	Since, For, Expires   string
	Leaving               bool
	Streams               int
	Dials, Failed, Denied uint64
	In, Out, Trip         string
}

func (b *fleetRecord) clusterDetail(c *clusterRecord) *clusterDetail {
	v := &clusterDetail{row: b.clusterRow(c), Means: stateTexts[c.state].means, Errors: c.errors}
	v.Lost = b.lostRows(c)
	v.Dials = fmt.Sprintf("%d, %d failed", c.dials.Dials, c.dials.Failed)
	if c.dials.Denied > 0 {
		v.Dials += fmt.Sprintf(", %d denied", c.dials.Denied)
	}
	for i := range c.sessions {
		s := &c.sessions[i]
		v.Sessions = append(v.Sessions, sessionRow{
			Key: s.replica + " " + s.ID, Agent: s.agentText(), Replica: s.replica, Program: s.Program, Remote: s.Remote,
			Since: formatTime(s.Since, b.at), For: formatBrief(b.at.Sub(s.Since)), Expires: formatTime(s.Expires, b.at), Leaving: s.draining,
			Streams: s.Streams, Dials: s.Dials, Failed: s.Failed - min(s.Denied, s.Failed), Denied: s.Denied,
			In: formatBytes(float64(s.BytesIn)), Out: formatBytes(float64(s.BytesOut)), Trip: formatRoundTrip(s.RoundTrip),
		})
	}
	return v
}
