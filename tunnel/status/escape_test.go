package status_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"unicode"

	"golang.org/x/net/html"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/status"
)

// hostile is what a name or an error may be: agents and those who enrol them
// choose it.
const hostile = `<script>alert(1)</script>"'><img src=x onerror=alert(1)>` + "`{{.}}`</title></textarea>"

// hostileFleet has the text wherever there is one.
func hostileFleet(text string) fleet {
	s := tunnel.SessionInfo{Cluster: text, Agent: text, ID: text, Remote: text, Program: text, Streams: 1}
	f := fleet{server(text, s), {Name: text + "2", Address: text, LastError: text}}
	f[0].Status.Clusters[0].LastError = text
	f[0].Status.Clusters = append(f[0].Status.Clusters, tunnel.ClusterStatus{
		Cluster: text + "x", Last: &tunnel.EndedSession{SessionInfo: tunnel.SessionInfo{Agent: text, Program: text, Remote: text}, Error: text},
	})
	f[0].Status.Failures = []tunnel.DialFailures{{Cluster: text, Text: text, Target: text, Caller: text, Side: tunnel.Side(text)}}
	return f
}

func TestEscape(t *testing.T) {
	f := hostileFleet(hostile)
	h := &status.Handler{Fleet: f.get, Title: hostile, Program: hostile}
	for _, uri := range hostileURIs(hostile) {
		text := request(h, "GET", uri).Body.String()
		if strings.Contains(text, "<script>alert") || strings.Contains(text, "<img") {
			t.Errorf("%s: got the name as it is", uri)
		}
		if got := strings.Count(text, "&lt;script&gt;alert(1)"); got < 2 {
			t.Errorf("%s: got the name %d times, want it to be there", uri, got)
		}
		checkHarmless(t, uri, text)
	}
}

func hostileURIs(text string) []string {
	q := url.QueryEscape(text)
	return []string{"/", "/live", "/?q=" + q, "/?cluster=" + q, "/live?cluster=" + q + "x", "/?state=" + q}
}

// What the query says is shown, and what does not print in it is not.
func TestUnprintableQuery(t *testing.T) {
	f := fleet{server("r", session("default/prod", "1"))}
	h := &status.Handler{Fleet: f.get}
	for _, uri := range hostileURIs("\x1b[31m\u202eZZ\u009b\u2028\u3164\xff\x00") {
		text := request(h, "GET", uri).Body.String()
		if shown := strings.Contains(text, "?[31m?ZZ? ???"); shown != (strings.Contains(uri, "q=") || strings.Contains(uri, "cluster=")) {
			t.Errorf("%s: is it shown: got %t", uri, shown)
		}
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) || r == '\u3164' }); i >= 0 {
			t.Errorf("%s: got %q on the page", uri, text[i:i+4])
		}
	}
}

// allowed are the elements of the page.
var allowed = strings.Fields("html head meta title link script body a header h1 h2 h3 noscript p div dl dt dd small span b br " +
	"table thead tbody tr th td wbr form label input button nav svg path main")

// checkHarmless fails for all in a page that could run, load or lead elsewhere.
func checkHarmless(t *testing.T, what, text string) {
	t.Helper()
	for n := range parse(t, text).Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if !slices.Contains(allowed, n.Data) {
			t.Errorf("%s: got an element %s", what, n.Data)
		}
		if n.Data == "script" && (attr(n, "src") != "page.js" || n.FirstChild != nil) {
			t.Errorf("%s: got a script of its own", what)
		}
		for _, a := range n.Attr {
			switch {
			case strings.HasPrefix(a.Key, "on"), a.Key == "style":
				t.Errorf("%s: got an attribute %s of %s", what, a.Key, n.Data)
			case a.Key == "href", a.Key == "src", a.Key == "action":
				if !harmlessLink(a.Val) {
					t.Errorf("%s: got %s=%q", what, a.Key, a.Val)
				}
			}
		}
	}
}

func harmlessLink(to string) bool {
	return to == "./" || strings.HasPrefix(to, "./?") || strings.HasPrefix(to, "#") || slices.Contains([]string{"page.css", "page.js", "icon.svg"}, to)
}

// Whatever the texts are, the page has the same elements, and the names are
// what a person reads.
func FuzzPage(f *testing.F) {
	for _, seed := range []string{hostile, "default/prod", "javascript:alert(1)", "\x00\xff", "</main>", "a b", "&lt;"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fleet := hostileFleet(text)
		h := &status.Handler{Fleet: func(context.Context) []tunnel.ReplicaStatus { return fleet }}
		for _, uri := range hostileURIs(text) {
			w := request(h, "GET", uri)
			if w.Code != http.StatusOK && w.Code != http.StatusNotFound {
				t.Fatalf("%s: got %d", uri, w.Code)
			}
			checkHarmless(t, uri, w.Body.String())
		}
	})
}

// A cluster's own page is found, whatever its name is.
func TestLinkToCluster(t *testing.T) {
	for _, name := range []string{"default/prod", hostile, "a&cluster=b", "ü +%", "#"} {
		synctest.Test(t, func(t *testing.T) {
			f := fleet{server("r", session(name, "1"))}
			h := &status.Handler{Fleet: f.get}
			link := all(all(get(t, h, "/"), ".clusters")[0], "tbody")[0]
			page := get(t, h, strings.TrimPrefix(attr(all(link, "a")[0], "href"), "."))
			if got := text(all(page, "h2")[0]); got != name {
				t.Errorf("got the page of %q, want %q", got, name)
			}
		})
	}
}
