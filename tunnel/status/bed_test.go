package status_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/status"
)

// A fleet is what a handler under test is told.
type fleet []tunnel.ReplicaStatus

func (f *fleet) get(context.Context) []tunnel.ReplicaStatus { return slices.Clone(*f) }

// server returns a replica that answers, with the clusters of sessions.
func server(name string, sessions ...tunnel.SessionInfo) tunnel.ReplicaStatus {
	r := tunnel.ReplicaStatus{Name: name, Connected: true, Status: tunnel.Status{Ready: true}}
	for _, s := range sessions {
		i := slices.IndexFunc(r.Status.Clusters, func(c tunnel.ClusterStatus) bool { return c.Cluster == s.Cluster })
		if i < 0 {
			i = len(r.Status.Clusters)
			r.Status.Clusters = append(r.Status.Clusters, tunnel.ClusterStatus{Cluster: s.Cluster, Connected: true})
		}
		if s.ID != "" { // else it had an agent once
			r.Status.Clusters[i].Sessions = append(r.Status.Clusters[i].Sessions, s)
		}
	}
	return r
}

func session(cluster, id string) tunnel.SessionInfo {
	return tunnel.SessionInfo{Cluster: cluster, Agent: "agent-" + cluster, ID: id, Remote: "192.0.2.1:5000", Since: time.Now()}
}

// gone is a cluster without a session.
func gone(cluster string) tunnel.SessionInfo { return tunnel.SessionInfo{Cluster: cluster} }

func request(h http.Handler, method, uri string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, uri, nil))
	return w
}

// get returns the page at uri, as it is in two seconds when all is asked anew.
func get(t *testing.T, h *status.Handler, uri string) *html.Node {
	t.Helper()
	time.Sleep(2 * time.Second) // of a synctest bubble
	w := request(h, "GET", uri)
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s: got %d, want 200: %s", uri, w.Code, w.Body)
	}
	return parse(t, w.Body.String())
}

func parse(t testing.TB, text string) *html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// all returns the elements that match: a name, .class or [data-key].
func all(n *html.Node, what string) (found []*html.Node) {
	for d := range n.Descendants() {
		if d.Type != html.ElementNode {
			continue
		}
		class, isClass := strings.CutPrefix(what, ".")
		if d.Data == what || isClass && slices.Contains(strings.Fields(attr(d, "class")), class) {
			found = append(found, d)
		}
	}
	return found
}

// text is what a person reads, with single spaces.
func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
			if d.NextSibling == nil || d.NextSibling.Data != "wbr" {
				b.WriteByte(' ')
			}
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// table returns the texts of the rows of the table of a class.
func table(t *testing.T, page *html.Node, class string) (rows [][]string) {
	t.Helper()
	tables := all(page, "."+class)
	if len(tables) != 1 {
		t.Fatalf("got %d tables of class %s, want one: %s", len(tables), class, text(page))
	}
	for _, tr := range all(all(tables[0], "tbody")[0], "tr") {
		var row []string
		for cell := range tr.ChildNodes() {
			if cell.Type == html.ElementNode {
				row = append(row, text(cell))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// names are the clusters of a page, in its order.
func names(t *testing.T, page *html.Node) (names []string) {
	t.Helper()
	if len(all(page, ".clusters")) == 0 {
		return nil
	}
	for _, row := range table(t, page, "clusters") {
		names = append(names, row[1])
	}
	return names
}

// headline returns the sentences that come first.
func headline(page *html.Node) (lines []string) {
	for _, p := range all(all(page, ".headline")[0], "p") {
		line := text(p)
		for _, sign := range all(p, ".sign") {
			line = strings.TrimPrefix(line, text(sign)+" ")
		}
		lines = append(lines, line)
	}
	return lines
}
