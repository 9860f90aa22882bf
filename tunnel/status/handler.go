package status

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"strconv"
	"strings"
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
	for _, f := range files {
		h.mux.HandleFunc("GET /"+f.name, f.serveFile)
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
	writeBody(w, r, code, "text/html; charset=utf-8", text.Bytes())
}

// writeBody writes the body, compressed if the client accepts gzip.
func writeBody(w http.ResponseWriter, r *http.Request, code int, kind string, body []byte) {
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

// takesGzip reads Accept-Encoding (RFC 9110, 12.5.3). A quality of zero refuses
// gzip, which no browser does.
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

var templates = template.Must(template.New("").Funcs(template.FuncMap{"breakable": breakableHTML}).ParseFS(content, "page.html"))

// file is a file that the page loads. Its ETag changes with the text: a browser
// asks each time, and keeps what it has until then.
type file struct {
	name, kind, tag string
	text            []byte
}

var files = []file{
	newFile("page.css", "text/css; charset=utf-8"),
	newFile("page.js", "text/javascript; charset=utf-8"),
	newFile("icon.svg", "image/svg+xml"),
}

func newFile(name, kind string) file {
	text, err := content.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	sum := sha256.Sum256(text)
	return file{name, kind, `W/"` + hex.EncodeToString(sum[:8]) + `"`, text}
}

func (f file) serveFile(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeBody(w, r, http.StatusOK, f.kind, f.text)
}
