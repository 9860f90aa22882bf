package status

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
)

//go:embed page.html page.css page.js icon.svg
var content embed.FS

var templates = template.Must(template.ParseFS(content, "page.html"))

// A file is what the page loads. Its tag changes with the text, so that a
// browser asks, and is mostly told to keep what it has.
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

func (f file) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	write(w, r, http.StatusOK, f.kind, f.text)
}
