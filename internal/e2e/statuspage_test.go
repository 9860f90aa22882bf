package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/status"
)

// A recording is what the page was at one moment, served again and again.
type recording map[string]*httptest.ResponseRecorder

func (r recording) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	// On a slow machine the page asks for what changed, and gets the same again.
	answer := r[strings.Replace(req.URL.RequestURI(), "/live", "/", 1)]
	if answer == nil {
		http.NotFound(w, req)
		return
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	w.Write(answer.Body.Bytes())
}

// record returns pages of a fleet of n clusters that was looked at for ten
// minutes, which take no time here, and are the same each time.
func record(t *testing.T, n int, uris ...string) recording {
	r := recording{}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(1000 * time.Hour) // midnight of New Year looks odd
		f := newMadeFleet(n, time.Now())
		h := &status.Handler{Fleet: f.get, Program: "causeway v0.1.1-0.20261123120000-0123456789ab"}
		for range 61 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/live", nil))
			time.Sleep(10 * time.Second)
		}
		for _, uri := range append(uris, "/page.css", "/page.js", "/icon.svg") {
			r[uri] = httptest.NewRecorder()
			h.ServeHTTP(r[uri], httptest.NewRequest("GET", uri, nil))
		}
	})
	return r
}

// views are what the page has to look well in.
var views = []view{
	{"light", 1440, 900, "light"}, {"dark", 1440, 900, "dark"}, {"screenshot", 1280, 860, "light"}, {"narrow", 1160, 900, "dark"},
	{"tablet", 820, 1180, "light"}, {"phone", 390, 844, "light"}, {"phone-dark", 390, 844, "dark"}, {"small", 320, 640, "light"},
}

// faint lists the texts that are hard to read: WCAG 2.2 wants a contrast of 4.5
// to 1. Every colour of the page is opaque where there is text.
const faint = `(() => {
	const light = (c) => c.match(/[\d.]+/g).slice(0, 3).map(Number).map((v) => v / 255)
		.map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const back = (e) => {
		for (; e; e = e.parentElement) {
			const c = getComputedStyle(e).backgroundColor;
			if (c !== "rgba(0, 0, 0, 0)") return c;
		}
		return "rgb(0, 0, 0)"; // none: it would fail in the dark or in the light
	};
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	const found = [];
	let seen = 0;
	for (let n = texts.nextNode(); n; n = texts.nextNode()) {
		const e = n.parentElement;
		if (!n.data.trim() || e.closest("noscript, [hidden]")) continue;
		seen++;
		const [a, b] = [light(getComputedStyle(e).color), light(back(e))];
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) found.push(n.data.trim() + " " + ratio.toFixed(1));
	}
	return seen < 5 ? ["only " + seen + " texts"] : found;
})()`

// broken lists the words that are cut in the middle. A word is letters and digits: a name
// may be cut at what is between them.
const broken = `(() => {
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	const found = [];
	for (let n = texts.nextNode(); n; n = texts.nextNode()) {
		if (n.parentElement.closest("noscript, [hidden], .skip")) continue;
		for (const m of n.data.matchAll(/[\p{L}\p{N}]+/gu)) {
			const r = document.createRange();
			r.setStart(n, m.index);
			r.setEnd(n, m.index + m[0].length);
			const lines = new Set([...r.getClientRects()].map((box) => Math.round(box.top)));
			if (lines.size > 1) found.push(m[0]);
		}
	}
	return found;
})()`

// The page can be read in the light, in the dark and on a phone, where nothing
// has to be scrolled sideways. A folder in CAUSEWAY_E2E_SHOTS gets pictures.
func TestStatusPageLooks(t *testing.T) {
	pages := map[string]string{"all": "/", "one": "/?cluster=default%2Fap-south-stage-23", "lost": "/?cluster=default%2Fap-south-stage-17", "gone": "/?cluster=other", "none": "/?q=none"}
	server := httptest.NewServer(record(t, 200, "/", pages["one"], pages["lost"], pages["gone"], pages["none"]))
	t.Cleanup(server.Close) // after the browser, whose console would complain
	b := newBrowser(t)
	for _, v := range views {
		b.look(v)
		for name, uri := range pages {
			b.open(server.URL + uri)
			if over := value[int](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
				t.Errorf("%s, %s: %d pixels too wide", v.name, name, over)
			}
			if texts := value[[]string](b, faint); len(texts) > 0 {
				t.Errorf("%s, %s: hard to read: %q", v.name, name, texts)
			}
			if words := value[[]string](b, broken); len(words) > 0 && v.width >= 1280 {
				t.Errorf("%s, %s: cut in the middle: %q", v.name, name, words)
			}
			b.shoot(v.name + "-" + name + ".png")
		}
	}
	for _, text := range b.complaints() {
		if !contains(text, "404", pages["gone"]) {
			t.Errorf("the console says: %s", text)
		}
	}
}

// A page of 5,000 clusters is there at once, and so is what somebody looks for.
func TestStatusPageOfMany(t *testing.T) {
	const n = 5000
	f := newMadeFleet(n, time.Now())
	h := &status.Handler{Fleet: f.get}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close) // after the browser, whose console would complain
	b := newBrowser(t)
	b.open(server.URL)
	if got := value[int](b, `document.querySelectorAll("table.clusters tbody tr").length`); got != 100 {
		t.Errorf("got %d rows, want 100", got)
	}
	type timing struct{ Answer, Interactive, Complete, Encoded, Decoded float64 }
	load := value[timing](b, `(() => {
		const t = performance.getEntriesByType("navigation")[0];
		return { Answer: t.responseStart, Interactive: t.domContentLoadedEventEnd, Complete: t.loadEventEnd, Encoded: t.encodedBodySize, Decoded: t.decodedBodySize };
	})()`)
	t.Logf("%d clusters: the answer begins after %.0f ms, the page is interactive after %.0f ms, complete after %.0f ms; %.0f kB, %.0f kB as it is sent",
		n, load.Answer, load.Interactive, load.Complete, load.Decoded/1000, load.Encoded/1000)
	if load.Interactive > 10_000 || load.Decoded > 400_000 || load.Encoded > 100_000 {
		t.Errorf("got %+v, want 10 s, 400 kB and 100 kB at the most", load)
	}
	began := time.Now()
	b.write("#q", "4999")
	b.until(`document.querySelectorAll("table.clusters tbody tr").length === 1`)
	t.Logf("found one of them %v after the first letter", time.Since(began).Round(time.Millisecond))
	if got := value[string](b, `document.querySelector("table.clusters tbody th").textContent`); got != "default/us-east-prod-4999" {
		t.Errorf("found %q, want the cluster with 4999", got)
	}
}

// get is a Handler's Fleet.
func (f *madeFleet) get(context.Context) []tunnel.ReplicaStatus { return f.next() }

// firstRow is a JavaScript expression for the text of the first row.
const firstRow = `(document.querySelector("table.clusters tbody tr")?.textContent ?? "")`

// The page follows what happens: an agent comes and dies, and the server stops
// answering and does again.
func TestStatusPageLives(t *testing.T) {
	t.Parallel() // it waits for the page's updates
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hub := newHub(t, &tunnel.Server{}, l)
	site := newSite(&status.Handler{Fleet: func(context.Context) []tunnel.ReplicaStatus {
		return []tunnel.ReplicaStatus{{Name: "hub", Self: true, Connected: true, Status: hub.Status()}}
	}})
	server := httptest.NewServer(site)
	t.Cleanup(server.Close) // after the browser, whose console would complain
	b := newBrowser(t)
	b.open(server.URL)
	b.do(`window.marked = true`) // gone if the page were loaded again
	b.until(`document.querySelector(".headline").textContent.includes("No agent has connected yet")`)

	kill := startMortal(t, hub, l.Addr().String())
	hub.session(slack)
	b.until(firstRow + `.includes("OK") && ` + firstRow + `.includes("` + cluster + `")`)
	b.write("#q", "prod")
	b.until(`location.search === "?q=prod"`)

	kill()
	next(t, hub.disconnected, slack, "the end of the session")
	b.until(firstRow + `.includes("No agent") && document.title.startsWith("1 of 1 cluster has no agent")`)
	if got := value[string](b, firstRow); !contains(got, "Gone for", "Last error: ") {
		t.Errorf("got %q, want since when and why", got)
	}
	if got := value[string](b, `document.activeElement.id + " " + document.activeElement.value`); got != "q prod" {
		t.Errorf("got %q in focus, want what was typed", got)
	}

	for _, tt := range []struct {
		code int32
		want string
	}{{http.StatusBadGateway, "the server answers 502"}, {http.StatusUnauthorized, "reload the page"}, {http.StatusFound, "sign in"}} {
		site.fail.Store(tt.code)
		b.until(fmt.Sprintf(`!document.getElementById("stale").hidden && document.getElementById("stale").textContent.includes(%q)`, tt.want))
	}
	if box := value[[]float64](b, `(() => { const r = document.getElementById("stale").getBoundingClientRect(); return [r.top, innerHeight - r.bottom]; })()`); box[0] < 0 || box[1] < 0 {
		t.Errorf("got the warning %v pixels from the edges, want it in sight", box)
	}
	b.shoot("stale.png")
	site.fail.Store(0)
	b.until(`document.getElementById("stale").hidden && !document.querySelector(".stale") && !document.title.startsWith("Stale")`)
	if !value[bool](b, `window.marked === true`) {
		t.Error("the page was loaded again, want it brought up to date")
	}
	for _, text := range b.complaints() {
		if !contains(text, "Failed to load resource") {
			t.Errorf("the console says: %s", text)
		}
	}
	checkHides(t, b, site)
}

// checkHides wants a page that nobody sees to ask for nothing, and at once when
// it is seen again.
func checkHides(t *testing.T, b *browser, site *site) {
	t.Helper()
	hide := func(hidden bool) {
		b.do(fmt.Sprintf(`Object.defineProperty(document, "hidden", { configurable: true, value: %v }); document.dispatchEvent(new Event("visibilitychange"))`, hidden))
	}
	hide(true)
	asked := site.asked.Load()
	// Longer than the time from one update to the next, by the page's clock.
	b.do(`window.later = false; setTimeout(() => { window.later = true; }, 1000 * document.body.dataset.refresh + 1000)`)
	b.until(`window.later`)
	if got := site.asked.Load(); got != asked {
		t.Errorf("got %d requests of a page that is hidden, want none", got-asked)
	}
	hide(false)
	b.until(`performance.getEntriesByType("resource").filter((e) => e.name.includes("/live")).length > 0`)
	next(t, site.requests, slack, "a request of the page that is seen again")
}

// Without script the page is whole, and the search works. All of it can be
// reached by the keyboard.
func TestStatusPageByKeyboard(t *testing.T) {
	server := httptest.NewServer(&status.Handler{Fleet: newMadeFleet(30, time.Now()).get})
	t.Cleanup(server.Close) // after the browser, whose console would complain
	b := newBrowser(t)
	b.script(false)
	b.open(server.URL)
	var stops []string
	for range 60 {
		b.press("\t")
		stop := value[string](b, `(document.activeElement.id || document.activeElement.getAttribute("href") || document.activeElement.textContent).trim()`)
		if stop == "q" {
			break
		}
		stops = append(stops, stop)
	}
	if len(stops) < 5 || stops[0] != "#clusters" {
		t.Errorf("got stops %q, want the way around the summary first", stops)
	}
	b.press("ap-south-prod-2 tunnel-server\r")
	b.until(`location.search.includes("q=ap-south-prod-2") && document.readyState === "complete"`)
	if got := value[string](b, firstRow); !contains(got, "default/ap-south-prod-2") {
		t.Errorf("got %q, want the cluster", got)
	}
	if got := value[int](b, `document.querySelectorAll("table.clusters tbody tr").length`); got < 1 || got > 11 {
		t.Errorf("got %d rows, want those that the words are in", got)
	}
}
