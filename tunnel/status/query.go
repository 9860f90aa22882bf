package status

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// perPage is how many clusters there are on a page.
const perPage = 100

// query is what of the fleet to show, as the URL says it.
type query struct {
	Q       string // words that are all to be in a cluster's row
	State   string // a state's key, "trouble", or empty for all
	Sort    string // a key of orders; empty: trouble first
	Page    int    // from 1
	Cluster string // this one alone
}

// orders are the other ways to sort: names from a, figures from the greatest.
var orders = map[string]func(a, b *record) int{
	"name":    func(a, b *record) int { return cmp.Compare(a.name, b.name) },
	"streams": func(a, b *record) int { return cmp.Compare(b.now.streams, a.now.streams) },
	"traffic": func(a, b *record) int { return cmp.Compare(b.now.in+b.now.out, a.now.in+a.now.out) },
	"trip":    func(a, b *record) int { return cmp.Compare(b.now.trip, a.now.trip) },
}

const trouble = "trouble"

// parseQuery passes over what it does not know.
func parseQuery(v url.Values) query {
	q := query{Q: strings.TrimSpace(v.Get("q")), State: v.Get("state"), Sort: v.Get("sort"), Cluster: v.Get("cluster")}
	if len(q.Q) > 200 {
		q.Q = strings.ToValidUTF8(q.Q[:200], "")
	}
	if _, ok := orders[q.Sort]; !ok {
		q.Sort = ""
	}
	if _, ok := stateOf(q.State); !ok && q.State != trouble {
		q.State = ""
	}
	q.Page, _ = strconv.Atoi(v.Get("page"))
	q.Page = max(q.Page, 1)
	return q
}

func stateOf(key string) (state, bool) {
	for s := range states {
		if stateTexts[s].key == key {
			return s, true
		}
	}
	return 0, false
}

// link is the URL of q, relative to the page's.
func (q query) link() string {
	v := url.Values{}
	for key, value := range map[string]string{"q": q.Q, "state": q.State, "sort": q.Sort, "cluster": q.Cluster} {
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

// find returns the clusters that q asks for, in its order, and how many there
// are of each state among those that its words find.
func (b *book) find(q query) (found []*record, counts [states]int) {
	words := strings.Fields(strings.ToLower(q.Q))
	only, hasOnly := stateOf(q.State)
	for _, c := range b.clusters {
		if !c.has(words) {
			continue
		}
		counts[c.state]++
		if hasOnly && c.state != only || q.State == trouble && c.state == fine {
			continue
		}
		found = append(found, c)
	}
	order, ok := orders[q.Sort]
	if !ok {
		order = byTrouble
	}
	slices.SortFunc(found, func(x, y *record) int { return cmp.Or(order(x, y), byTrouble(x, y)) })
	return found, counts
}

// has reports whether each word is somewhere in what is known of the cluster.
func (c *record) has(words []string) bool {
	if len(words) == 0 {
		return true
	}
	var text strings.Builder
	add := func(s string) { text.WriteString(strings.ToLower(s) + "\n") }
	add(c.name)
	add(stateTexts[c.state].word)
	for i := range c.held {
		add(c.held[i].replica)
		add(c.held[i].Agent)
		add(c.held[i].Remote)
	}
	for _, home := range c.homes {
		add(home)
	}
	for _, e := range c.errors {
		add(e.text)
	}
	for _, word := range words {
		if !strings.Contains(text.String(), word) {
			return false
		}
	}
	return true
}
