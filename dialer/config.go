package dialer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/noproxy"
)

// Config has the values of the environment's proxy variables. A proxy is a URL as
// [ParseURL] takes it, in any of the fields, or host:port for an http proxy. socks5
// means socks5h, as for net/http and kubectl: the proxy resolves names. Printed with
// package fmt, a Config shows no user info. The zero Config has no proxy.
type Config struct {
	// HTTPProxy is the proxy for port 80 (HTTP_PROXY). If empty, it is AllProxy.
	HTTPProxy string
	// HTTPSProxy is the proxy for every other port (HTTPS_PROXY). If empty, it is
	// AllProxy.
	HTTPSProxy string
	// AllProxy is the default of the other two (ALL_PROXY). If empty, connections are
	// direct.
	AllProxy string
	// NoProxy is the list of hosts that need no proxy (NO_PROXY), as [noproxy.Parse]
	// reads it. If empty, only localhost and loopback addresses need none.
	NoProxy string
	// CGI means that this process serves a CGI request, whose client can set
	// HTTP_PROXY. Then dials that would use HTTPProxy fail.
	CGI bool
}

// ConfigFromEnvironment returns a Config of the environment at the call. The
// variables are HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, each in upper or
// lower case, and REQUEST_METHOD, which means CGI.
//
// If both cases of a variable are set, lower case counts. An empty variable counts
// as not set. Programs disagree about that:
//
//	this package, golang.org/x/net from 0.58 on    lower case first
//	curl, wget, Python                             lower case first
//	net/http of Go 1.26, golang.org/x/net to 0.57  upper case first
//
// Also, curl and wget ignore HTTP_PROXY in upper case, and net/http knows no
// ALL_PROXY. For several programs, set HTTP_PROXY and HTTPS_PROXY in both cases to
// the same value.
func ConfigFromEnvironment() *Config {
	// httpproxy.FromEnvironment has another order in older versions.
	either := func(name string) string { return cmp.Or(os.Getenv(strings.ToLower(name)), os.Getenv(name)) }
	return &Config{
		HTTPProxy:  either("HTTP_PROXY"),
		HTTPSProxy: either("HTTPS_PROXY"),
		AllProxy:   either("ALL_PROXY"),
		NoProxy:    either("NO_PROXY"),
		CGI:        os.Getenv("REQUEST_METHOD") != "",
	}
}

// FromEnvironment returns the Dialer of [ConfigFromEnvironment] without options. It
// reads the environment once, at the call. The error is [Config.Dialer]'s.
func FromEnvironment() (Dialer, error) { return ConfigFromEnvironment().Dialer(nil) }

// FromConfig returns the [Config.Dialer] of the same fields, without options.
func FromConfig(cfg *httpproxy.Config) (Dialer, error) {
	c := &Config{HTTPProxy: cfg.HTTPProxy, HTTPSProxy: cfg.HTTPSProxy, NoProxy: cfg.NoProxy, CGI: cfg.CGI}
	return c.Dialer(nil)
}

// Dialer returns a Dialer that chooses the proxy as net/http does: none for
// localhost, loopback addresses and what NoProxy lists, otherwise HTTPProxy for port
// 80 and HTTPSProxy for every other port, since a dial knows no URL scheme.
//
// opts applies to each of the proxies, also its TLSConfig and Auth. Its Forward also
// makes the connections without a proxy. Its Resolver is not used. A nil opts is the
// zero Options.
//
// A proxy that can't be used is the error of the dials that would use it, and of no
// other: those to port 80, or those to every other port. If it is both, Dialer returns
// it. The error names the field and its variable, and quotes at most an unknown scheme.
// (Go's ProxyFunc and golang.org/x/net/proxy dial directly instead.) The Dialer fails
// for an address that is not host:port with a number as its port. c may be changed
// afterwards.
func (c *Config) Dialer(opts *Options) (Dialer, error) {
	opts = cmp.Or(opts, &Options{})
	all := configProxy("AllProxy (ALL_PROXY)", c.AllProxy, opts, forwardOrDirect(opts.Forward))
	web := configProxy("HTTPProxy (HTTP_PROXY)", c.HTTPProxy, opts, all)
	other := configProxy("HTTPSProxy (HTTPS_PROXY)", c.HTTPSProxy, opts, all)
	bad1, ok1 := web.(*unusable)
	bad2, ok2 := other.(*unusable)
	if ok1 && ok2 {
		return nil, errors.Join(slices.Compact([]error{bad1.err, bad2.err})...)
	}
	if c.CGI && c.HTTPProxy != "" {
		web = &unusable{&Error{Op: opHTTP, Phase: PhaseConfig, Err: errCGI}}
	}
	return &Router{NoProxy: noproxy.Parse(c.NoProxy), Direct: forwardOrDirect(opts.Forward), Default: other, web: web}, nil
}

var errCGI = errors.New("the proxy of HTTP_PROXY is not used in a CGI environment, where a client can set it: unset REQUEST_METHOD or HTTP_PROXY")

// Format writes the fields, for every verb, without the proxies' user info.
func (c Config) Format(s fmt.State, _ rune) {
	io.WriteString(s, c.String())
}

// String returns the fields without the proxies' user info.
func (c Config) String() string {
	return fmt.Sprintf("HTTPProxy=%s HTTPSProxy=%s AllProxy=%s NoProxy=%s CGI=%t",
		redactedProxy(c.HTTPProxy), redactedProxy(c.HTTPSProxy), redactedProxy(c.AllProxy), printable.Text(c.NoProxy, maxText), c.CGI)
}

func redactedProxy(text string) string {
	if text == "" {
		return ""
	}
	u, err := parseProxy(text)
	if err != nil {
		return "(unusable)"
	}
	return redactedURL(u)
}

// parseProxy is ParseURL for a variable, which may also have only host:port.
func parseProxy(text string) (*url.URL, error) {
	u, err := ParseURL(text)
	if err == nil {
		return u, nil
	}
	// "host:3128" parses with a scheme of its own.
	if v, e := url.Parse("http://" + text); e == nil && checkURL(v) == nil {
		return v, nil
	}
	return nil, err
}

// configProxy returns the Dialer for the proxy in a field. If the field is empty, it
// returns otherwise. If it can't be used, it is an *unusable.
func configProxy(field, text string, opts *Options, otherwise Dialer) Dialer {
	if text == "" {
		return otherwise
	}
	u, err := parseProxy(text)
	if err == nil {
		if rest, ok := strings.CutPrefix(u.Scheme, "socks5"); ok && !strings.HasPrefix(rest, "h") {
			u.Scheme = "socks5h" + rest // FromURL's socks5 is curl's
		}
		var d Dialer
		if d, err = FromURL(u, opts); err == nil {
			return d
		}
	}
	named := *err.(*Error)
	named.Err = fmt.Errorf("%s: %w", field, named.Err)
	return &unusable{&named}
}

// unusable is in place of a proxy. Its dials fail.
type unusable struct{ err *Error }

func (u *unusable) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	err := *u.err
	err.Addr = address
	return nil, &err
}
