package status

import (
	"fmt"
	"strconv"
	"time"
)

// page is what the template shows.
type page struct {
	Title    string
	Refresh  int // seconds between updates
	At       string
	Span     string // how far back the charts go
	Query    query
	Key      string // of the worst state
	Headline []note
	Facts    []fact
	Replicas []replicaRow
	Filters  []filter
	Columns  []column
	Rows     []row
	Where    string // which rows of how many
	Previous string // URL; empty: there is none
	Next     string
	Home     string // the URL of all clusters
	One      *one   // the cluster that was asked for; nil: none was, or it is not known
}

type fact struct {
	Name, Value string
	Spark       *spark
}

type replicaRow struct {
	Name, Address, URL string
	Self               bool
	State              string // a class: ok, draining or down
	Sign, Word, Since  string
	Error              string
	Clusters, Sessions int
	Streams            int
	In, Out            string
}

type filter struct {
	Word, Means, URL string
	Key, Sign        string
	Count            int
	Current          bool
}

type column struct {
	Word, URL string
	Sort      string // aria-sort; empty: not sorted by it
}

type row struct {
	Name, URL        string
	Key, Sign, Word  string // of the state
	Problem, Error   string
	Held             []hold
	Homes            []string // where it was last, if it is nowhere
	More             int      // sessions that are not in Held
	Streams, In, Out string
	Trip             string
	Sparks           sparks
}

// hold is where an agent's sessions are.
type hold struct {
	Agent  string
	Places []place
}

type place struct {
	Replica, For string
	Leaving      bool
}

// page makes the page that q asks for.
func (b *book) page(q query, title string) *page {
	p := &page{
		Title: title, Refresh: int(refresh / time.Second), At: b.at.UTC().Format("2 Jan 2006 15:04:05 UTC"), Span: duration(slots * b.step),
		Query: q, Home: query{Q: q.Q, State: q.State, Sort: q.Sort, Page: q.Page}.link(),
	}
	p.Headline, p.Key = b.headline()
	if q.Cluster != "" {
		if c := b.clusters[q.Cluster]; c != nil {
			p.One = b.one(c)
		}
		return p
	}
	p.Facts = b.facts()
	for i := range b.replicas {
		p.Replicas = append(p.Replicas, newReplicaRow(&b.replicas[i], b.at))
	}
	found, counts := b.find(q)
	p.Filters = newFilters(q, counts)
	p.Columns = newColumns(q)
	p.turnTo(b, found)
	return p
}

// turnTo shows the clusters of one page, the last where there are not as many.
func (p *page) turnTo(b *book, found []*record) {
	q := p.Query
	q.Page = min(q.Page, max((len(found)+perPage-1)/perPage, 1))
	from := (q.Page - 1) * perPage
	to := min(from+perPage, len(found))
	for _, c := range found[from:to] {
		p.Rows = append(p.Rows, b.row(c))
	}
	switch {
	case len(found) == 0 && len(b.clusters) == 0:
		p.Where = "No cluster has connected yet."
	case len(found) == 0:
		p.Where = "No cluster is like that."
	default:
		p.Where = fmt.Sprintf("%d to %d of %s", from+1, to, plural(len(found), "cluster"))
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

func (b *book) facts() []fact {
	agents, sessions, connected := 0, 0, 0
	for _, c := range b.clusters {
		names := map[string]bool{}
		for i := range c.held {
			names[c.held[i].Agent] = true
		}
		agents, sessions = agents+len(names), sessions+len(c.held)
		if c.state.dialable() {
			connected++
		}
	}
	answering := 0
	for i := range b.replicas {
		if b.replicas[i].Connected {
			answering++
		}
	}
	points := b.total.past.until(b.index())
	charts := newSparks(&points)
	in, out := charts.In, charts.Out
	now := b.total.now
	return []fact{
		{Name: "Clusters reachable", Value: of(connected, len(b.clusters))},
		{Name: "Replicas answering", Value: of(answering, len(b.replicas))},
		{Name: "Agents", Value: strconv.Itoa(agents)},
		{Name: "Sessions", Value: strconv.Itoa(sessions)},
		{Name: "Open streams", Value: strconv.Itoa(int(now.streams)), Spark: &charts.Streams},
		{Name: "From clusters", Value: rate(now.in), Spark: &in},
		{Name: "To clusters", Value: rate(now.out), Spark: &out},
	}
}

func of(n, all int) string { return fmt.Sprintf("%d of %d", n, all) }

func newReplicaRow(r *replica, now time.Time) replicaRow {
	v := replicaRow{
		Name: name(r.Name, r.Address), Address: r.Address, Self: r.Self, Error: r.LastError, URL: query{Q: r.Name}.link(),
		Clusters: r.clusters, Sessions: r.sessions, Streams: r.streams, In: rate(r.in), Out: rate(r.out),
		State: "ok", Sign: "✓", Word: "Answers",
	}
	switch {
	case !r.Connected:
		v.State, v.Sign, v.Word = "down", "✕", "Can't be reached"
	case r.Draining:
		v.State, v.Sign, v.Word = "draining", "→", "Draining"
	}
	if !r.Since.IsZero() {
		v.Since = clock(r.Since, now)
	}
	return v
}

func newFilters(q query, counts [states]int) []filter {
	all, bad := 0, 0
	for s, n := range counts {
		all += n
		if state(s) != fine {
			bad += n
		}
	}
	add := func(f filter) filter {
		f.Current = q.State == f.Key
		f.URL = query{Q: q.Q, Sort: q.Sort, State: f.Key}.link()
		return f
	}
	filters := []filter{
		add(filter{Word: "All", Count: all, Means: "every cluster"}),
		add(filter{Key: trouble, Word: "Not OK", Count: bad, Means: "whatever wants a look"}),
	}
	for s := states - 1; s >= 0; s-- {
		t := stateTexts[s]
		filters = append(filters, add(filter{Key: t.key, Sign: t.sign, Word: t.word, Means: t.means, Count: counts[s]}))
	}
	return filters
}

func newColumns(q query) []column {
	columns := []column{
		{Word: "State"}, {Word: "Cluster"}, {Word: "Held by"}, {Word: "Streams"},
		{Word: "Traffic ↓ from ↑ to"}, {Word: "Round trip"}, {Word: "What is wrong"},
	}
	for i, key := range []string{"", "name", "-", "streams", "traffic", "trip", "-"} {
		if key == "-" {
			continue
		}
		columns[i].URL = query{Q: q.Q, State: q.State, Sort: key}.link()
		if q.Sort == key {
			columns[i].Sort = "descending"
			if key == "name" {
				columns[i].Sort = "ascending"
			}
		}
	}
	return columns
}
