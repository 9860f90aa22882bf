package dialer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/causewayproject/causeway/internal/printable"
)

// ParseURL parses the URL of a proxy: scheme://[user[:password]@]host[:port], or
// scheme+unix://[user[:password]@]/path, with a scheme that [FromURL] takes. The
// error is an [*Error] of [PhaseConfig]. It quotes at most an unknown scheme: a
// password that was not percent-encoded could be anywhere in the text.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, urlError("", urlSyntax(err))
	}
	if err := checkURL(u); err != nil {
		return nil, err
	}
	return u, nil
}

const urlForm = "want scheme://[user:password@]host[:port]"

// urlSyntax replaces an error of url.Parse, whose text quotes the URL.
func urlSyntax(err error) error {
	if _, ok := errors.AsType[url.EscapeError](err); ok {
		return errors.New("not a URL: a % in the user info must be written %25; " + urlForm)
	}
	return errors.New("not a URL: " + urlForm + "; in the user info, percent-encode : / ? # @ and spaces")
}

// checkURL refuses a URL that FromURL can't use, and one that looks as though a
// reserved character of the password was not encoded: a part of the password would
// be looked up as a host, or be ignored.
func checkURL(u *url.URL) error {
	switch {
	case u == nil:
		return urlError("", errors.New("the URL is nil: "+urlForm))
	case defaultPorts[u.Scheme] == "" && !isSocketURL(u):
		return urlError("", schemeError(u))
	case isSocketURL(u):
		return checkSocketURL(u)
	case u.Opaque != "" || u.Hostname() == "":
		return urlError("", errors.New("the URL has no host: "+urlForm))
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return urlError("", errors.New("the URL has more than a host and port: "+urlForm+"; in the user info, percent-encode / ? and #"))
	}
	if _, err := proxyHost(u.Hostname()); err != nil {
		return urlError("", fmt.Errorf("%w: %s", err, urlForm))
	}
	// u.Port is also empty if the port is not a number.
	if colon := strings.LastIndexByte(u.Host, ':'); colon > strings.LastIndexByte(u.Host, ']') && colon < len(u.Host)-1 {
		if _, ok := parsePort(u.Port()); !ok {
			return urlError("", errors.New("the port is not a number from 1 to 65535"))
		}
	}
	return nil
}

// isSocketURL reports whether u is that of a proxy on a unix socket.
func isSocketURL(u *url.URL) bool {
	return slices.Contains([]string{"http+unix", "socks5+unix", "socks5h+unix"}, u.Scheme)
}

func checkSocketURL(u *url.URL) error {
	const form = "want scheme://[user:password@]/path/of/socket"
	switch {
	case u.Opaque != "" || u.Host != "":
		return urlError("", errors.New("the URL has no absolute path of a unix socket: "+form))
	case u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return urlError("", errors.New("the URL has more than a path: "+form+"; percent-encode ? and #"))
	}
	if err := checkSocket(u.Path); err != nil {
		return urlError("", fmt.Errorf("%w: %s", err, form))
	}
	return nil
}

func schemeError(u *url.URL) error {
	switch {
	case u.Scheme == "":
		return errors.New("the URL has no scheme: " + urlForm)
	case u.Opaque != "":
		// "user:password@host" reads as a scheme: it must not be quoted.
		return errors.New("the URL has no // after its scheme, or no scheme: " + urlForm)
	case u.Scheme == "socks4", u.Scheme == "socks4a":
		return fmt.Errorf("the scheme %s is not supported: use socks5 or socks5h", u.Scheme)
	case u.Scheme == "socks":
		return errors.New("the scheme socks says no version: use socks5 or socks5h")
	}
	return fmt.Errorf("the scheme %q is not http, https, socks5, socks5h, http+unix, socks5+unix or socks5h+unix", printable.Text(u.Scheme, maxText))
}

func urlError(proxy string, err error) error {
	return &Error{Op: "proxy url", Phase: PhaseConfig, Proxy: proxy, Err: err}
}

// defaultPorts are the schemes of FromURL.
var defaultPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}

// proxyAddrOf returns the field Addr for the proxy at u.
func proxyAddrOf(u *url.URL) string {
	if isSocketURL(u) {
		return unixPrefix + u.Path
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), defaultPorts[u.Scheme]))
}

func redactedURL(u *url.URL) string {
	scheme, _, _ := strings.Cut(u.Scheme, "+")
	return proxyURL(scheme, proxyAddrOf(u))
}

// Options has settings that a proxy's URL can't have. A nil *Options is the zero
// value.
type Options struct {
	// TLSConfig is the configuration of the connection to an https proxy. If nil, the
	// proxy's certificate must be of the proxy's host and signed by the system's
	// roots.
	TLSConfig *tls.Config
	// HTTP2 allows an https proxy to choose HTTP/2: see HTTPConnect.HTTP2. The caller
	// closes it. If nil, HTTP/1.1 is used.
	HTTP2 *HTTP2
	// Auth authenticates to an http or https proxy. If nil, the URL's user info is
	// sent by the Basic scheme.
	Auth Authenticator
	// Header returns what is sent to an http or https proxy: see HTTPConnect.Header.
	// If nil, nothing more is sent.
	Header func(ctx context.Context, target string) (http.Header, error)
	// Resolver looks names up for socks5 URLs in FromURL. If nil, it is
	// net.DefaultResolver.
	Resolver Resolver
	// Forward dials the proxy. If nil, it is Direct{}.
	Forward Dialer
	// Timeout bounds one dial. If zero, it is 30 seconds; if negative, only the
	// context bounds the dial.
	Timeout time.Duration
}

// FromURL returns the Dialer for the proxy at u, by its scheme. socks5 means what it
// means for curl. (For net/http, and so for [Config], it means socks5h.)
//
//	http, https  an *HTTPConnect; default ports 80 and 443
//	socks5       a *SOCKS5 that resolves names here; default port 1080
//	socks5h      a *SOCKS5 that lets the proxy resolve names
//
// The schemes http+unix, socks5+unix and socks5h+unix are for a proxy on a unix
// socket. Such a URL has an absolute path instead of a host, in which ? # % are
// percent-encoded: http+unix:///run/proxy.sock, or with user info
// http+unix://user:password@/run/proxy.sock.
//
// The user info is used for Basic with HTTP, and for RFC 1929 with SOCKS5. A user
// without a password has an empty one. The error, an [*Error] of [PhaseConfig], says
// that u has another scheme, or something that would be ignored. u and opts may be
// changed afterwards.
func FromURL(u *url.URL, opts *Options) (Dialer, error) {
	opts = cmp.Or(opts, &Options{})
	if err := checkURL(u); err != nil {
		return nil, err
	}
	if strings.HasPrefix(u.Scheme, "socks5") {
		return socksFromURL(u, opts)
	}
	d := &HTTPConnect{
		Addr:    proxyAddrOf(u),
		Auth:    opts.Auth,
		Header:  opts.Header,
		Forward: opts.Forward,
		Timeout: opts.Timeout,
	}
	if u.Scheme == "https" {
		d.TLSConfig = opts.TLSConfig
		if d.TLSConfig == nil {
			d.TLSConfig = &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		}
		d.HTTP2 = opts.HTTP2
	}
	if username, password, ok := userInfo(u); ok && d.Auth == nil {
		if err := checkBasic(username, password); err != nil {
			return nil, urlError(redactedURL(u), err)
		}
		d.Auth = Basic(Password(username, password))
	}
	return d, nil
}

func socksFromURL(u *url.URL, opts *Options) (Dialer, error) {
	d := &SOCKS5{
		Addr:    proxyAddrOf(u),
		Forward: opts.Forward,
		Timeout: opts.Timeout,
	}
	if u.Scheme == "socks5" || u.Scheme == "socks5+unix" {
		d.Resolver = cmp.Or[Resolver](opts.Resolver, net.DefaultResolver)
	}
	if username, password, ok := userInfo(u); ok {
		if err := checkLogin(username, password); err != nil {
			return nil, urlError(redactedURL(u), err)
		}
		d.Credentials = Password(username, password)
	}
	return d, nil
}

// userInfo returns the decoded user info. ok is false for an empty one, as in
// "http://@proxy".
func userInfo(u *url.URL) (username, password string, ok bool) {
	if u.User == nil || u.User.String() == "" {
		return "", "", false
	}
	password, _ = u.User.Password()
	return u.User.Username(), password, true
}
