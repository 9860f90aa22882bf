package status_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/tunnel/status"
)

func TestRoutes(t *testing.T) {
	f := fleet{server("a", session("c", "1"))}
	h := &status.Handler{Fleet: f.get}
	for _, tt := range []struct {
		method, uri string
		code        int
		kind, cache string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8", "no-store"},
		{"HEAD", "/", 200, "text/html; charset=utf-8", "no-store"},
		{"GET", "/live?q=c", 200, "text/html; charset=utf-8", "no-store"},
		{"GET", "/?cluster=c", 200, "text/html; charset=utf-8", "no-store"},
		{"GET", "/?cluster=other", 404, "text/html; charset=utf-8", "no-store"},
		{"GET", "/live?cluster=other", 200, "text/html; charset=utf-8", "no-store"},
		{"GET", "/page.js", 200, "text/javascript; charset=utf-8", "no-cache"},
		{"GET", "/page.css", 200, "text/css; charset=utf-8", "no-cache"},
		{"GET", "/icon.svg", 200, "image/svg+xml", "no-cache"},
		{"GET", "/page.html", 404, "text/plain; charset=utf-8", ""},
		{"GET", "/other", 404, "text/plain; charset=utf-8", ""},
		{"POST", "/", 405, "text/plain; charset=utf-8", ""},
		{"DELETE", "/live", 405, "text/plain; charset=utf-8", ""},
	} {
		t.Run(tt.method+" "+tt.uri, func(t *testing.T) {
			w := request(h, tt.method, tt.uri)
			header := w.Result().Header
			if w.Code != tt.code || header.Get("Content-Type") != tt.kind || header.Get("Cache-Control") != tt.cache {
				t.Errorf("got %d, %q, %q; want %d, %q, %q", w.Code, header.Get("Content-Type"), header.Get("Cache-Control"), tt.code, tt.kind, tt.cache)
			}
			policy := header.Get("Content-Security-Policy")
			for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"} {
				if !strings.Contains(policy, part) {
					t.Errorf("got policy %q, want %s in it", policy, part)
				}
			}
			if strings.Contains(policy, "unsafe") || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("got %v, want nothing unsafe, nosniff, no-referrer", header)
			}
		})
	}
}

func TestNoFleet(t *testing.T) {
	w := request(&status.Handler{}, "GET", "/")
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "Fleet is required") {
		t.Errorf("got %d, %q; want 500 and what is required", w.Code, w.Body)
	}
}

// What the program says is wrong is in the headline, and makes it a bad one.
func TestNotes(t *testing.T) {
	f := fleet{server("a", session("c", "1"))}
	h := &status.Handler{Fleet: f.get}
	if text := request(h, "GET", "/").Body.String(); !strings.Contains(text, `class="headline ok"`) {
		t.Errorf("got %s; want a fleet without trouble", text)
	}
	h.Notes = func() []string { return []string{"The certificate of <x> has expired."} }
	text := request(h, "GET", "/").Body.String()
	for _, want := range []string{`class="headline failing"`, "The certificate of &lt;x&gt; has expired.", "<title>The certificate of"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s; want %s in it", text, want)
		}
	}
}

// Mounted below a prefix, all that the page names is found.
func TestMounted(t *testing.T) {
	f := fleet{server("a", session("c", "1"))}
	mux := http.NewServeMux()
	mux.Handle("/tunnel/", http.StripPrefix("/tunnel", &status.Handler{Fleet: f.get}))
	page := parse(t, request(mux, "GET", "/tunnel/").Body.String())
	found := 0
	for _, n := range append(append(all(page, "link"), all(page, "script")...), all(page, "a")...) {
		to := attr(n, "href") + attr(n, "src")
		if strings.HasPrefix(to, "#") {
			continue
		}
		found++
		at := httptest.NewRequest("GET", "/tunnel/", nil).URL
		u, err := at.Parse(to)
		if err != nil || !strings.HasPrefix(u.Path, "/tunnel/") {
			t.Errorf("got a link to %q, %v; want one below /tunnel/", to, err)
		} else if w := request(mux, "GET", u.RequestURI()); w.Code != http.StatusOK {
			t.Errorf("GET %s: got %d, want 200", u, w.Code)
		}
	}
	if found < 10 {
		t.Errorf("got %d links, want more", found)
	}
}
