package dialer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	"golang.org/x/net/http/httpproxy"

	"github.com/causewayproject/causeway/noproxy"
)

// FromEnvironment is [FromConfig] of the proxy variables of the environment
// (HTTP_PROXY, HTTPS_PROXY, NO_PROXY and their lowercase versions), as
// golang.org/x/net/http/httpproxy reads them: where both cases are set, the
// lowercase one counts. The environment is read once, at the call.
func FromEnvironment() (Dialer, error) {
	return FromConfig(httpproxy.FromEnvironment())
}

// FromConfig returns the Dialer that a Go program with this configuration
// uses: HTTPSProxy for every port but 80, HTTPProxy for port 80 (a dial knows
// no URL scheme), and no proxy for localhost, loopback addresses and what
// NoProxy lists ([noproxy.Parse]).
//
// Where Go's ProxyFunc dials directly because it can't parse a proxy,
// FromConfig returns an error. A proxy without a scheme is http. HTTPProxy is
// not used in a CGI environment (cfg.CGI): dials to port 80 fail there. cfg
// may be changed afterwards.
func FromConfig(cfg *httpproxy.Config) (Dialer, error) {
	web, err1 := configProxy("HTTPProxy (HTTP_PROXY)", cfg.HTTPProxy)
	other, err2 := configProxy("HTTPSProxy (HTTPS_PROXY)", cfg.HTTPSProxy)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if cfg.CGI && cfg.HTTPProxy != "" {
		web = Func(func(_ context.Context, _, address string) (net.Conn, error) {
			return nil, &Error{Op: opHTTP, Phase: PhaseConfig, Addr: address, Err: errCGI}
		})
	}
	return &environment{web: web, other: other, direct: noproxy.Parse(cfg.NoProxy)}, nil
}

var errCGI = errors.New("the proxy of HTTP_PROXY is not used in a CGI environment, where a client can set it: unset REQUEST_METHOD or HTTP_PROXY")

func configProxy(field, text string) (Dialer, error) {
	if text == "" {
		return Direct{}, nil
	}
	u, err := ParseURL(text)
	if err != nil {
		// host:port alone is customary in these variables. "host:3128" parses
		// with a scheme of its own.
		if v, e := url.Parse("http://" + text); e == nil && checkURL(v) == nil {
			u, err = v, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("dialer: %s: %w", field, err)
	}
	d, err := FromURL(u, nil)
	if err != nil {
		return nil, fmt.Errorf("dialer: %s: %w", field, err)
	}
	return d, nil
}

// environment picks a Dialer as net/http picks a proxy.
type environment struct {
	web, other Dialer // for port 80, and for the other ports
	direct     *noproxy.Rules
}

func (e *environment) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &Error{Op: opDirect, Phase: PhaseConfig, Addr: address, Err: err}
	}
	switch {
	case e.direct.Bypass(host, port):
		return Direct{}.DialContext(ctx, network, address)
	case port == "80":
		return e.web.DialContext(ctx, network, address)
	}
	return e.other.DialContext(ctx, network, address)
}
