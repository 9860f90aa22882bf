package status

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// A Handler serves the page at /, and beside it what the page loads; all its
// links are relative. It may be used by several goroutines at once, and must
// not be copied after the first request.
//
// What was asked of Fleet is good for two seconds and for all who look, so that
// many of them cost as much as one. A cluster with two sessions takes about 2.4
// KiB of memory, 5,000 of them 12 MiB; it is forgotten a day after the last
// replica knew of it.
type Handler struct {
	// Fleet returns what each replica knows; required. It is [tunnel.Server.Fleet],
	// or one ReplicaStatus around [tunnel.Server.Status] where there are no
	// others. Its context ends after 10 seconds, whoever asked: an answer that
	// was cut short would show replicas as lost.
	Fleet func(context.Context) []tunnel.ReplicaStatus
	// Title is the page's; empty: "Tunnel".
	Title string
	// Step is the time from one point of the sparklines to the next, of which
	// there are 60, and how often Run asks; zero: 10 seconds.
	Step time.Duration

	once sync.Once
	mux  *http.ServeMux

	mu     sync.Mutex // guards the fields below
	book   book
	flight chan struct{} // open while Fleet is asked; nil: it is not
}

var _ http.Handler = (*Handler)(nil)

func (h *Handler) title() string {
	if h.Title == "" {
		return "Tunnel"
	}
	return h.Title
}

func (h *Handler) step() time.Duration {
	if h.Step <= 0 {
		return 10 * time.Second
	}
	return h.Step
}

func (h *Handler) setup() {
	h.mux = http.NewServeMux()
	h.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { h.servePage(w, r, "page.html") })
	h.mux.HandleFunc("GET /live", func(w http.ResponseWriter, r *http.Request) { h.servePage(w, r, "main") })
	for _, f := range files {
		h.mux.HandleFunc("GET /"+f.name, f.serve)
	}
}

// policy forbids all but the page's own files. Who may show the page in a
// frame could lead a person's clicks.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler, for GET and HEAD.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.once.Do(h.setup)
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer") // the query may name a cluster
	h.mux.ServeHTTP(w, r)
}

// servePage serves the whole page, or the part of it that changes.
func (h *Handler) servePage(w http.ResponseWriter, r *http.Request, template string) {
	w.Header().Set("Cache-Control", "no-store")
	if h.Fleet == nil {
		http.Error(w, "status: Handler.Fleet is required", http.StatusInternalServerError)
		return
	}
	q := parseQuery(r.URL.Query())
	p, err := h.look(r.Context(), q)
	if err != nil {
		return // the one who asked is gone
	}
	var text bytes.Buffer
	if err := templates.ExecuteTemplate(&text, template, p); err != nil {
		http.Error(w, "status: the page can't be made", http.StatusInternalServerError)
		return
	}
	code := http.StatusOK
	if template != "main" && q.Cluster != "" && p.One == nil { // an update that fails would be an error on the console
		code = http.StatusNotFound
	}
	write(w, r, code, "text/html; charset=utf-8", text.Bytes())
}

// write writes the body, smaller where the client takes that.
func write(w http.ResponseWriter, r *http.Request, code int, kind string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", kind)
	header.Add("Vary", "Accept-Encoding")
	if takesGzip(r) {
		var small bytes.Buffer
		z := gzip.NewWriter(&small)
		z.Write(body)
		z.Close()
		body = small.Bytes()
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	w.Write(body)
}

// takesGzip is about RFC 9110, 12.5.3. A quality of zero is the one that no
// browser sends for gzip and that must be heard all the same.
func takesGzip(r *http.Request) bool {
	for _, text := range r.Header.Values("Accept-Encoding") {
		for entry := range strings.SplitSeq(text, ",") {
			coding, quality, _ := strings.Cut(strings.TrimSpace(entry), ";")
			if strings.TrimSpace(coding) == "gzip" {
				return strings.Trim(strings.TrimSpace(quality), "q=0.") != "" || quality == ""
			}
		}
	}
	return false
}
