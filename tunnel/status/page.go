package status

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/causewayproject/causeway/tunnel"
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
	Replicas []replica
	Filters  []filter
	Rows     []row
	Where    string // which rows of how many
	Previous string // URL; empty on the first page
	Next     string
	// Failures are those of the cluster, or the latest of all; AllFailures is how many
	// there are.
	Failures    []tunnel.DialFailures
	AllFailures int
	Refusals    []tunnel.Refusals
	Detail      *clusterDetail // the cluster that was asked for; nil: none was, or it is not known

	now time.Time
}

// Time shows when something was.
func (p *page) Time(t time.Time) string { return formatTime(t, p.now) }

// Ago shows how long ago it was.
func (p *page) Ago(t time.Time) string { return formatBrief(p.now.Sub(t)) }

type fact struct{ Name, Value string }

type filter struct {
	stateText
	URL     string
	Count   int
	Current bool
}

type row struct {
	stateText
	Name           string
	Problem, Error string
	Agents         []agentRow
	LastReplicas   []string // where it was last, if it is nowhere
	More           int      // sessions that are not in Agents
	Streams        int
	RoundTrip      time.Duration
}

// agentRow is an agent and its sessions.
type agentRow struct {
	Agent    string
	Sessions []session
}

// buildPage makes the page that q asks for. The headline has the other notes, too.
func (b *fleetRecord) buildPage(q query, title, program string, others []string) *page {
	p := &page{
		Title: title, Program: program, Refresh: int(refreshInterval / time.Second), At: b.at.UTC().Format("2 Jan 2006 15:04:05 UTC"),
		Query: q, now: b.at,
	}
	p.Failures, p.AllFailures = b.failuresOf(q.Cluster)
	p.Headline, p.Key = b.headlineNotes(others)
	if q.Cluster != "" {
		if c := b.clusters[q.Cluster]; c != nil {
			p.Detail = b.clusterDetail(c)
		}
		return p
	}
	p.Facts, p.Refusals, p.Replicas = b.pageFacts(), b.refusals, b.replicas
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
			names[c.sessions[i].AgentText()] = true
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
		add(filter{stateText: stateText{Word: "All", Means: "every cluster"}, Count: all}),
		add(filter{stateText: stateText{Key: notOK, Word: "Not OK", Means: "every cluster that is not OK"}, Count: bad}),
	}
	for s := states - 1; s >= 0; s-- {
		filters = append(filters, add(filter{stateText: stateTexts[s], Count: counts[s]}))
	}
	return filters
}

// clusterRow shows a cluster as a row of the table.
func (b *fleetRecord) clusterRow(c *clusterRecord) row {
	v := row{stateText: stateTexts[c.state], Name: c.name, Problem: b.problemText(c), Streams: c.streams, RoundTrip: c.roundTrip}
	if len(c.errors) > 0 {
		v.Error = c.errors[0].Text
	}
	if len(c.sessions) == 0 {
		v.LastReplicas = c.lastReplicas()
	}
	v.Agents, v.More = c.agentSessions()
	return v
}

// agentSessions returns the agents and their sessions, as many as a row has room
// for, and how many more sessions there are.
func (c *clusterRecord) agentSessions() (holds []agentRow, more int) {
	const room = 4
	for i := range c.sessions {
		if i == room {
			return holds, len(c.sessions) - room
		}
		s := &c.sessions[i]
		at := slices.IndexFunc(holds, func(h agentRow) bool { return h.Agent == s.AgentText() })
		if at < 0 {
			at = len(holds)
			holds = append(holds, agentRow{Agent: s.AgentText()})
		}
		holds[at].Sessions = append(holds[at].Sessions, *s)
	}
	return holds, 0
}

// clusterDetail is the page of one cluster.
type clusterDetail struct {
	row
	Dials    string // of the last minutes
	Errors   []lastError
	Sessions []session
	Lost     []lostRow // who was connected last, if nobody is
}

func (b *fleetRecord) clusterDetail(c *clusterRecord) *clusterDetail {
	v := &clusterDetail{row: b.clusterRow(c), Errors: c.errors, Sessions: c.sessions, Lost: b.lostRows(c)}
	v.Dials = fmt.Sprintf("%d, %d failed", c.dials.Dials, c.dials.Failed)
	if c.dials.Denied > 0 {
		v.Dials += fmt.Sprintf(", %d denied", c.dials.Denied)
	}
	return v
}
