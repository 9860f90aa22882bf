package kubeconfig

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/noproxy"
)

// way is a Route as a Client takes it.
type way struct {
	dialer dialer.Dialer // for any address
	proxy  *url.URL      // that leads to the server, as a kubeconfig names it; nil: none
	mixed  bool          // some addresses are dialed without the proxy
}

// route returns the way to srv.
func (o *ClientOptions) route(s *settings, srv server) (*way, error) {
	if o.Dialer != nil {
		if o.Forward != nil || o.ProxyTLS != nil {
			return nil, fieldErrorf("ClientOptions.Dialer", "replaces the route: Forward and ProxyTLS can't be set along with it")
		}
		return &way{dialer: o.Dialer}, nil
	}
	forward := o.Forward
	if forward == nil {
		forward = dialer.Direct{}
	}
	proxyURL := s.current.cluster.ProxyURL
	if proxyURL == "" {
		return &way{dialer: forward}, s.checkDirect()
	}
	field := s.current.field("proxy-url")
	proxy, err := parseProxyURL(proxyURL)
	if err != nil {
		return nil, fieldError(field, err)
	}
	d, err := o.proxyDialer(s, proxy, forward)
	if err != nil {
		var fe *FieldError
		if errors.As(err, &fe) {
			return nil, err
		}
		return nil, fieldError(field, err)
	}
	if s.extension == nil || s.extension.noProxy == "" {
		return &way{dialer: d, proxy: proxy}, nil
	}
	return s.around(d, forward, proxy, srv)
}

// checkDirect refuses to leave out what speaks of a proxy: the kubeconfig may
// have lost its proxy-url to a program that does not know the extension.
func (s *settings) checkDirect() error {
	e := s.extension
	if e == nil {
		return nil
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"gateway", e.gateway != nil}, {"header", len(e.header) > 0},
		{"noProxy", e.noProxy != ""}, {"proxyTLS", e.proxyTLS != nil},
	} {
		if f.set {
			return fieldErrorf(s.extensionField(f.name), "is for a proxy, and there is no proxy-url")
		}
	}
	return nil
}

// around returns the way by d, a dialer of proxy, for all that noProxy does not
// list. The list alone decides: nothing is implied.
func (s *settings) around(d, forward dialer.Dialer, proxy *url.URL, srv server) (*way, error) {
	rules, err := noproxy.Options{NoImpliedLoopback: true}.Parse(s.extension.noProxy)
	if err != nil { // not reached: without Strict it is nil
		return nil, fieldError(s.extensionField("noProxy"), err)
	}
	if host, port, err := net.SplitHostPort(srv.address); err == nil && rules.Bypass(host, port) {
		proxy = nil
	}
	return &way{dialer: &dialer.Router{NoProxy: rules, Direct: forward, Default: d}, proxy: proxy, mixed: true}, nil
}

// proxyDialer returns a dialer that goes through proxy, with what the extension
// says of it.
func (o *ClientOptions) proxyDialer(s *settings, proxy *url.URL, forward dialer.Dialer) (dialer.Dialer, error) {
	// A kubeconfig's socks5 is net/http's, which FromURL calls socks5h.
	u := *proxy
	if u.Scheme == "socks5" {
		u.Scheme = "socks5h"
	}
	opts := &dialer.Options{Forward: forward}
	if err := s.header(&u, opts); err != nil {
		return nil, err
	}
	if o.ProxyTLS != nil {
		opts.TLSConfig = o.ProxyTLS.Clone()
		return dialer.FromURL(&u, opts)
	}
	if s.extension == nil || s.extension.proxyTLS == nil {
		return dialer.FromURL(&u, opts)
	}
	if u.Scheme != "https" {
		return nil, fieldErrorf(s.extensionField("proxyTLS"), "is for an https proxy, not for %s", proxy.Scheme)
	}
	config, err := s.proxyTLS()
	if err != nil {
		return nil, err
	}
	opts.TLSConfig = config
	ref := s.extension.proxyTLS.Secret
	if ref == nil {
		return dialer.FromURL(&u, opts)
	}
	if o.ReadSecret == nil {
		return nil, fieldErrorf("ClientOptions.ReadSecret", "%w for %s", errRequired, s.extensionField("proxyTLS.secret"))
	}
	if _, err := dialer.FromURL(&u, opts); err != nil {
		return nil, err
	}
	return &secretDialer{url: &u, opts: opts, ref: *ref, read: o.ReadSecret, field: s.extensionField("proxyTLS.secret"), ca: config.RootCAs == nil}, nil
}

// header makes opts send the extension's header.
func (s *settings) header(u *url.URL, opts *dialer.Options) error {
	if s.extension == nil || len(s.extension.header) == 0 {
		return nil
	}
	const auth = "Proxy-Authorization"
	field := s.extensionField("header")
	if u.Scheme != "http" && u.Scheme != "https" {
		return fieldErrorf(field, "is for an http or https proxy: SOCKS5 has no header")
	}
	header := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(s.extension.header)) {
		for _, value := range s.extension.header[name] {
			header.Add(name, value)
		}
	}
	if values := header.Values(auth); len(values) > 0 {
		if u.User != nil || len(values) > 1 {
			return fieldErrorf(field, "%s is one of several credentials for the proxy; want one", auth)
		}
		opts.Auth = dialer.AuthFunc(func(_ context.Context, c *dialer.Challenge) (string, error) {
			if c.Attempt > 0 {
				return "", nil // it was refused
			}
			return values[0], nil
		})
		header.Del(auth)
	}
	if len(header) > 0 {
		opts.Header = func(context.Context, string) (http.Header, error) { return header, nil }
	}
	return nil
}

// proxyTLS returns the extension's, without its Secret.
func (s *settings) proxyTLS() (*tls.Config, error) {
	config := &tls.Config{ServerName: s.extension.proxyTLS.ServerName}
	if err := setCA(config, s.proxy.CA); err != nil {
		return nil, fieldError(s.extensionField("proxyTLS.certificateAuthority"), err)
	}
	return config, fieldError(s.extensionField("proxyTLS.clientCertificate"), setCertificate(config, s.proxy.Certificate, s.proxy.Key))
}
