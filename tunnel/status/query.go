package status

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/causewayproject/causeway/internal/printable"
)

// perPage is how many clusters there are on a page.
const perPage = 100

// query is what the URL asks the page to show.
type query struct {
	Q       string // words that are all to be in a cluster's row
	State   string // a state's key, "trouble", or empty for all
	Page    int    // from 1
	Cluster string // only this one
}

const notOK = "trouble"

// parseQuery ignores what it does not know.
func parseQuery(v url.Values) query {
	q := query{Q: strings.TrimSpace(v.Get("q")), State: v.Get("state"), Cluster: printable.Text(v.Get("cluster"), 1<<10)}
	if len(q.Q) > 200 {
		q.Q = strings.ToValidUTF8(q.Q[:200], "")
	}
	q.Q = printable.Text(q.Q, len(q.Q))
	if _, ok := stateOf(q.State); !ok && q.State != notOK {
		q.State = ""
	}
	q.Page, _ = strconv.Atoi(v.Get("page"))
	q.Page = max(q.Page, 1)
	return q
}

func stateOf(key string) (state, bool) {
	for s := range states {
		if stateTexts[s].Key == key {
			return s, true
		}
	}
	return 0, false
}

// link is the URL of q, relative to the page's.
func (q query) link() string {
	v := url.Values{}
	for key, value := range map[string]string{"q": q.Q, "state": q.State, "cluster": q.Cluster} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if q.Page > 1 {
		v.Set("page", strconv.Itoa(q.Page))
	}
	if len(v) == 0 {
		return "./"
	}
	return "./?" + v.Encode()
}

// findClusters returns the clusters that q asks for, those in trouble first, and counts the
// clusters that its words find by state.
func (b *fleetRecord) findClusters(q query) (found []*clusterRecord, counts [states]int) {
	words := strings.Fields(strings.ToLower(q.Q))
	only, hasOnly := stateOf(q.State)
	for _, c := range b.clusters {
		if !c.matchesWords(words) {
			continue
		}
		counts[c.state]++
		if hasOnly && c.state != only || q.State == notOK && c.state == healthy {
			continue
		}
		found = append(found, c)
	}
	slices.SortFunc(found, compareTrouble)
	return found, counts
}

// matchesWords reports whether each word occurs in the names, replicas, agents,
// addresses or errors of the cluster.
func (c *clusterRecord) matchesWords(words []string) bool {
	if len(words) == 0 {
		return true
	}
	var text strings.Builder
	add := func(s string) { text.WriteString(strings.ToLower(s) + "\n") }
	add(c.name)
	add(stateTexts[c.state].Word)
	for i := range c.seen { // now, or when it was last held
		add(c.seen[i].Holder)
		add(c.seen[i].AgentText())
		add(c.seen[i].Remote)
	}
	for _, e := range c.errors {
		add(e.Text)
	}
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text.String(), word) })
}
