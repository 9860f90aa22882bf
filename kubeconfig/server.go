package kubeconfig

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// server is where an API server is, or was.
type server struct {
	text    string // the URL, as a rest.Config has it
	url     *url.URL
	address string // host:port, which is what is dialed
}

// newServer takes a URL that checkServer has accepted.
func newServer(text string) (server, error) {
	u, err := url.Parse(text)
	if err != nil {
		return server{}, err // not reached
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	return server{text: text, url: u, address: addressOf(u)}, nil
}

func addressOf(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// host is the server's name or address.
func (s server) host() string { return s.url.Hostname() }

// serves reports whether u is below the server's URL.
func (s server) serves(u *url.URL) bool {
	if s.url.Scheme != u.Scheme || !strings.EqualFold(s.address, addressOf(u)) {
		return false
	}
	rest, ok := strings.CutPrefix(u.Path, s.url.Path)
	return ok && (rest == "" || rest[0] == '/')
}

// forward returns req as it has to be sent to the server now: what was made for
// one of known, and is not for now, is sent to now. req is not changed.
func forward(req *http.Request, now server, known []server) *http.Request {
	from := now
	for _, s := range known {
		// Servers may share a host, as they do behind some front ends.
		if s.serves(req.URL) && (!from.serves(req.URL) || len(s.url.Path) > len(from.url.Path)) {
			from = s
		}
	}
	if from.text == now.text || !from.serves(req.URL) {
		return req
	}
	u := *req.URL
	u.Scheme, u.Host = now.url.Scheme, now.url.Host
	u.Path = now.url.Path + strings.TrimPrefix(req.URL.Path, from.url.Path)
	if u.RawPath != "" || now.url.RawPath != "" {
		u.RawPath = now.url.EscapedPath() + strings.TrimPrefix(req.URL.EscapedPath(), from.url.EscapedPath())
	}
	own := *req
	own.URL = &u
	// http.NewRequest sets it, and a caller may.
	if strings.EqualFold(req.Host, req.URL.Host) {
		own.Host = u.Host
	}
	return &own
}

// withServer returns known and s.
func withServer(known []server, s server) []server {
	if slices.ContainsFunc(known, func(k server) bool { return k.text == s.text }) {
		return known
	}
	return append(slices.Clip(known), s)
}

func equalAddress(a, b string) bool { return strings.EqualFold(a, b) }
