package route

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Server is where an API server is, or was.
type Server struct {
	Text    string // the URL, as a rest.Config has it
	URL     *url.URL
	Address string // host:port, which is what is dialed
}

// NewServer takes a URL that checkServer has accepted.
func NewServer(text string) (Server, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Server{}, err // not reached
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	return Server{Text: text, URL: u, Address: AddressOf(u)}, nil
}

// AddressOf returns the host:port of a URL, the scheme's port if it names none.
func AddressOf(u *url.URL) string {
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80"}[u.Scheme], "443"))
}

// Host is the server's name or address.
func (s Server) Host() string { return s.URL.Hostname() }

// servesURL reports whether u is below the server's URL.
func (s Server) servesURL(u *url.URL) bool {
	if s.URL.Scheme != u.Scheme || !strings.EqualFold(s.Address, AddressOf(u)) {
		return false
	}
	rest, ok := strings.CutPrefix(u.Path, s.URL.Path)
	return ok && (rest == "" || rest[0] == '/')
}

// CheckSwitched closes an answer that makes a connection of a request which has not asked for
// it, and returns an error: its Body is the connection, which no context ends.
func CheckSwitched(req *http.Request, resp *http.Response) error {
	if resp.StatusCode != http.StatusSwitchingProtocols || req.Header.Get("Upgrade") != "" {
		return nil
	}
	resp.Body.Close()
	return errors.New("the answer is 101 Switching Protocols, which nobody has asked for")
}

// Forward returns req as it has to be sent to the server now: what was made for
// one of known, and is not for now, is sent to now. req is not changed.
func Forward(req *http.Request, now Server, known []Server) *http.Request {
	from := now
	for _, s := range known {
		// Servers may share a host, as they do behind some front ends.
		if s.servesURL(req.URL) && (!from.servesURL(req.URL) || len(s.URL.Path) > len(from.URL.Path)) {
			from = s
		}
	}
	if from.Text == now.Text || !from.servesURL(req.URL) {
		return req
	}
	u := *req.URL
	u.Scheme, u.Host = now.URL.Scheme, now.URL.Host
	u.Path = now.URL.Path + strings.TrimPrefix(req.URL.Path, from.URL.Path)
	if u.RawPath != "" || now.URL.RawPath != "" {
		u.RawPath = now.URL.EscapedPath() + strings.TrimPrefix(req.URL.EscapedPath(), from.URL.EscapedPath())
	}
	own := *req
	own.URL = &u
	// http.NewRequest sets it, and a caller may.
	if strings.EqualFold(req.Host, req.URL.Host) {
		own.Host = u.Host
	}
	return &own
}

// ServesURL reports whether u is below the URL of one of known.
func ServesURL(known []Server, u *url.URL) bool {
	return slices.ContainsFunc(known, func(s Server) bool { return s.servesURL(u) })
}

// WithServer returns known and s.
func WithServer(known []Server, s Server) []Server {
	if slices.ContainsFunc(known, func(k Server) bool { return k.Text == s.Text }) {
		return known
	}
	return append(slices.Clip(known), s)
}

// EqualAddress reports whether a and b are one host:port.
func EqualAddress(a, b string) bool { return strings.EqualFold(a, b) }
