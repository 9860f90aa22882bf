package status

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"html/template"
	"net/http"
	"sync"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// Handler serves the page at /, and next to it the files that the page loads. All
// its links are relative. It is safe for concurrent use, and must not be copied
// after the first request.
//
// An answer of Fleet is used for two seconds and for all clients, so that many
// open pages cost as much as one, and Fleet is asked only while a page is open. A cluster
// with two sessions takes about 1 KiB, and 5,000 clusters 5 MiB. A cluster is forgotten a
// day after the last replica knew of it, and after the last dial for it that failed.
type Handler struct {
	// Fleet returns what each replica knows. Required. It is [tunnel.Server.Fleet],
	// or, without other replicas, one ReplicaStatus around [tunnel.Server.Status].
	// Its context ends after 10 seconds, and not when the client leaves: an answer
	// that was cut short would show replicas as lost.
	Fleet func(context.Context) []tunnel.ReplicaStatus
	// Title is the title of the page. Empty means "Tunnel".
	Title string
	// Program is the name and version of the program, at the top of the page. Empty: it
	// is left out.
	Program string
	// Notes returns what else is wrong, as the program knows it, such as a certificate
	// that has expired: a sentence each, beside those about the fleet. It must not block.
	// If nil, nothing is.
	Notes func() []string

	once sync.Once
	mux  *http.ServeMux

	mu     sync.Mutex // guards the fields below
	book   fleetRecord
	asking chan struct{} // open while Fleet is asked; nil: it is not
}

var _ http.Handler = (*Handler)(nil)

func (h *Handler) registerPaths() {
	h.mux = http.NewServeMux()
	h.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { h.servePage(w, r, "page.html") })
	h.mux.HandleFunc("GET /live", func(w http.ResponseWriter, r *http.Request) { h.servePage(w, r, "main") })
	for name, kind := range files {
		h.mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache")
			w.Header().Set("Content-Type", kind) // a machine may have others
			http.ServeFileFS(w, r, content, name)
		})
	}
}

// policy forbids all but the page's own files. frame-ancestors keeps another page
// from showing this one in a frame and stealing clicks.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler, for GET and HEAD.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.once.Do(h.registerPaths)
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
	p, err := h.buildPage(r.Context(), q)
	if err != nil {
		return // the client is gone
	}
	var text bytes.Buffer
	if err := templates.ExecuteTemplate(&text, template, p); err != nil {
		http.Error(w, "status: the page can't be made", http.StatusInternalServerError)
		return
	}
	code := http.StatusOK
	if template != "main" && q.Cluster != "" && p.Detail == nil && p.AllFailures == 0 { // an update that fails would be an error on the console
		code = http.StatusNotFound
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	w.Write(text.Bytes())
}

const (
	// sampleLife is how long an answer of Fleet is used.
	sampleLife = 2 * time.Second
	// refreshInterval is how often an open page is brought up to date.
	refreshInterval = 5 * time.Second
	// fleetTimeout bounds a call of Fleet.
	fleetTimeout = 10 * time.Second
)

// buildPage returns the page that q asks for.
func (h *Handler) buildPage(ctx context.Context, q query) (*page, error) {
	if err := h.sample(ctx); err != nil {
		return nil, err
	}
	var notes []string
	if h.Notes != nil {
		notes = h.Notes()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.book.buildPage(q, cmp.Or(h.Title, "Tunnel"), h.Program, notes), nil
}

// sample asks Fleet unless there is a fresh answer. Of several calls at once one
// asks, and the others wait for it, at most until their ctx ends.
func (h *Handler) sample(ctx context.Context) error {
	for {
		h.mu.Lock()
		if !h.book.at.IsZero() && time.Since(h.book.at) < sampleLife {
			h.mu.Unlock()
			return nil
		}
		flight := h.asking
		if flight == nil {
			h.asking = make(chan struct{})
			h.mu.Unlock()
			h.askFleet(ctx)
			return ctx.Err()
		}
		h.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *Handler) askFleet(ctx context.Context) {
	defer func() { // even if Fleet panics
		h.mu.Lock()
		defer h.mu.Unlock()
		close(h.asking)
		h.asking = nil
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fleetTimeout)
	defer cancel()
	fleet := h.Fleet(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.book.addSample(time.Now(), fleet)
}

//go:embed page.html page.css page.js icon.svg
var content embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"breakable": breakableHTML, "bytes": formatBytes, "trip": formatRoundTrip, "notDenied": notDenied, "op": opText, "side": sideText,
	"clusterLink": func(name string) string { return query{Cluster: name}.link() },
}).ParseFS(content, "page.html"))

// files are what the page loads, and their kinds.
var files = map[string]string{
	"page.css": "text/css; charset=utf-8",
	"page.js":  "text/javascript; charset=utf-8",
	"icon.svg": "image/svg+xml",
}
