// Package route makes of a kubeconfig what a connection to its API server
// takes: a dialer, which goes by the proxy and tries the endpoints, the settings
// for TLS, and the credentials. It connects to nothing by itself.
package route

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/keypair"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
	"github.com/causewayproject/causeway/noproxy"
)

// Options are the fields of connect.Options that concern the route.
type Options struct {
	ProxyTLS   *tls.Config
	Dialer     dialer.Dialer
	Forward    dialer.Dialer
	ReadSecret func(ctx context.Context, namespace, name string) (map[string][]byte, error)
}

// DialFunc is the type of net.Dialer.DialContext.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Route is the way to an API server.
type Route struct {
	Settings   *Settings
	Server     Server
	ServerName string        // that of the API server's certificate
	Dialer     dialer.Dialer // for any address; tries the endpoints if it is the API server's
	Proxy      *url.URL      // as a kubeconfig names it; nil without one
	Forward    dialer.Dialer // to the proxy; nil without one

	direct    dialer.Dialer // Dialer without the endpoints
	mixed     bool          // some addresses are dialed without the proxy
	endpoints *endpoints    // nil: the server is the only one
}

// New returns the route of s. Nothing is dialed.
func (o *Options) New(s *Settings) (*Route, error) {
	srv, err := NewServer(s.Rest.Host)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	r, err := o.newRoute(s, srv)
	if err != nil {
		return nil, err
	}
	r.Settings, r.Server, r.ServerName, r.direct = s, srv, cmp.Or(s.Rest.ServerName, srv.Host()), r.Dialer
	if more := s.extension.Endpoints; len(more) > 0 {
		r.endpoints = newEndpoints(r, more)
		r.Dialer = r.endpoints.withoutHandshake(r.direct)
	}
	return r, nil
}

// Credentials are what the API server is shown, and how it is verified.
type Credentials struct {
	Config *transport.Config // the user's
	TLS    *tls.Config       // nil: the system's roots
}

// Credentials returns those of the route, and a configuration for a transport
// that dials by wrap(dialer).
func (r *Route) Credentials(wrap func(dialer.Dialer) DialFunc) (*transport.Config, *Credentials, error) {
	inner := rest.CopyConfig(r.Settings.Rest)
	if r.Proxy != nil {
		// For exec plugins, which are told of the cluster and its proxy.
		inner.Proxy = http.ProxyURL(r.Proxy)
	}
	inner.Dial = wrap(r.direct)
	config, err := inner.TransportConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig: %w", err)
	}
	own := *config
	if err := keypair.Check(own.TLS.KeyData); err != nil {
		return nil, nil, field.Errorf("client-key-data", "%w", err)
	}
	tlsConfig, err := transport.TLSConfigFor(&own)
	if err != nil {
		name := "client-certificate-data"
		if own.HasCA() && (own.TLS.Insecure || !x509.NewCertPool().AppendCertsFromPEM(own.TLS.CAData)) {
			name = r.Settings.Current.Field("certificate-authority-data")
		}
		return nil, nil, field.Wrap(name, err)
	}
	return config, &Credentials{Config: &own, TLS: tlsConfig}, nil
}

// HasLogin reports whether the kubeconfig has credentials for the proxy.
func (r *Route) HasLogin() bool {
	return r.Proxy != nil && r.Proxy.User != nil || field.HasHeader(r.Settings.extension.Header, "Proxy-Authorization")
}

// Install makes t, which dials by the route, try the endpoints until a TLS
// handshake succeeds.
func (r *Route) Install(t *http.Transport) {
	if r.endpoints != nil {
		r.endpoints.install(t)
	}
}

// newRoute returns the way to srv, without the endpoints.
func (o *Options) newRoute(s *Settings, srv Server) (*Route, error) {
	if o.Dialer != nil {
		if o.Forward != nil || o.ProxyTLS != nil {
			return nil, field.Errorf("Options.Dialer", "replaces the route: Forward and ProxyTLS can't be set along with it")
		}
		return &Route{Dialer: o.Dialer}, nil
	}
	forward := cmp.Or[dialer.Dialer](o.Forward, dialer.Direct{})
	proxyURL := s.Current.Cluster.ProxyURL
	if proxyURL == "" {
		return &Route{Dialer: forward}, s.checkDirect()
	}
	path := s.Current.Field("proxy-url")
	proxy, err := field.ParseProxyURL(proxyURL)
	if err != nil {
		return nil, field.Wrap(path, err)
	}
	d, err := o.proxyDialer(s, proxy, forward)
	if err != nil {
		if _, ok := errors.AsType[*field.Error](err); ok {
			return nil, err
		}
		return nil, field.Wrap(path, err)
	}
	if s.extension.NoProxy == "" {
		return &Route{Dialer: d, Proxy: proxy, Forward: forward}, nil
	}
	return s.withNoProxy(d, forward, proxy, srv), nil
}

// checkDirect refuses to leave out what speaks of a proxy: the kubeconfig may
// have lost its proxy-url to a program that does not know the extension.
func (s *Settings) checkDirect() error {
	e := s.extension
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"gateway", e.Gateway != nil}, {"header", len(e.Header) > 0},
		{"noProxy", e.NoProxy != ""}, {"proxyTLS", e.ProxyTLS != nil},
	} {
		if f.set {
			return field.Errorf(s.extensionField(f.name), "is for a proxy, and there is no proxy-url")
		}
	}
	return nil
}

// withNoProxy returns the way by d, a dialer of proxy, for all that noProxy does not
// list. Only the list decides: nothing is implied.
func (s *Settings) withNoProxy(d, forward dialer.Dialer, proxy *url.URL, srv Server) *Route {
	rules, _ := noproxy.Options{NoImpliedLoopback: true}.Parse(s.extension.NoProxy) // without Strict there is no error
	if host, port, err := net.SplitHostPort(srv.Address); err == nil && rules.Bypass(host, port) {
		proxy = nil
	}
	return &Route{Dialer: &dialer.Router{NoProxy: rules, Direct: forward, Default: d}, Proxy: proxy, Forward: forward, mixed: true}
}

// proxyDialer returns a dialer that goes through proxy, with what the extension
// says of it.
func (o *Options) proxyDialer(s *Settings, proxy *url.URL, forward dialer.Dialer) (dialer.Dialer, error) {
	// A kubeconfig's socks5 is net/http's, which FromURL calls socks5h.
	u := *proxy
	if u.Scheme == "socks5" {
		u.Scheme = "socks5h"
	}
	opts := &dialer.Options{Forward: forward}
	if err := s.header(&u, opts); err != nil {
		return nil, err
	}
	if o.ProxyTLS != nil || s.extension.ProxyTLS == nil {
		opts.TLSConfig = o.ProxyTLS.Clone()
		return dialer.FromURL(&u, opts)
	}
	if u.Scheme != "https" {
		return nil, field.Errorf(s.extensionField("proxyTLS"), "is for an https proxy, not for %s", proxy.Scheme)
	}
	config, err := s.proxyTLS()
	if err != nil {
		return nil, err
	}
	opts.TLSConfig = config
	ref := s.extension.ProxyTLS.Secret
	if ref == nil {
		return dialer.FromURL(&u, opts)
	}
	if o.ReadSecret == nil {
		return nil, field.Errorf("Options.ReadSecret", "%w for %s", field.ErrRequired, s.extensionField("proxyTLS.secret"))
	}
	if _, err := dialer.FromURL(&u, opts); err != nil {
		return nil, err
	}
	return &secretDialer{url: &u, opts: opts, ref: *ref, read: o.ReadSecret, path: s.extensionField("proxyTLS.secret"), ca: config.RootCAs == nil}, nil
}

// header makes opts send the extension's header.
func (s *Settings) header(u *url.URL, opts *dialer.Options) error {
	if len(s.extension.Header) == 0 {
		return nil
	}
	const auth = "Proxy-Authorization"
	path := s.extensionField("header")
	if u.Scheme != "http" && u.Scheme != "https" {
		return field.Errorf(path, "is for an http or https proxy: SOCKS5 has no header")
	}
	header := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(s.extension.Header)) {
		for _, value := range s.extension.Header[name] {
			header.Add(name, value)
		}
	}
	if values := header.Values(auth); len(values) > 0 {
		if u.User != nil || len(values) > 1 {
			return field.Errorf(path, "%s is one of several credentials for the proxy; want one", auth)
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
func (s *Settings) proxyTLS() (*tls.Config, error) {
	config := &tls.Config{ServerName: s.extension.ProxyTLS.ServerName}
	if err := setCA(config, s.proxy.CA); err != nil {
		return nil, field.Wrap(s.extensionField("proxyTLS.certificateAuthority"), err)
	}
	return config, field.Wrap(s.extensionField("proxyTLS.clientCertificate"), setCertificate(config, s.proxy.Certificate, s.proxy.Key))
}

// caKey is the key of a CA beside the two of a kubernetes.io/tls Secret.
const caKey = "ca.crt"

// secretDialer dials through an https proxy that wants what a Secret holds. The
// Secret is read for each connection, so that what it holds may change.
type secretDialer struct {
	url  *url.URL
	opts *dialer.Options // with a TLSConfig
	ref  entry.SecretRef
	read func(ctx context.Context, namespace, name string) (map[string][]byte, error)
	path string // the extension's field
	ca   bool   // the Secret's CA is the proxy's
}

func (d *secretDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	data, err := d.read(ctx, d.ref.Namespace, d.ref.Name)
	if err != nil {
		return nil, field.Errorf(d.path, "read the Secret %s/%s: %w", d.ref.Namespace, d.ref.Name, err)
	}
	// Whoever writes a kubeconfig may name any Secret beside a proxy of their own.
	if proxy := field.SecretProxy(data); proxy != "" && !field.SameProxy(proxy, d.url.String()) {
		return nil, field.Errorf(d.path, "the Secret %s/%s is for another proxy, which its key %s or %s names", d.ref.Namespace, d.ref.Name, field.KeyProxyURL, field.KeyGateway)
	}
	opts := *d.opts
	opts.TLSConfig = d.opts.TLSConfig.Clone()
	if err := setCertificate(opts.TLSConfig, data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]); err != nil {
		return nil, field.Errorf(d.path, "the Secret %s/%s: %s and %s: %w", d.ref.Namespace, d.ref.Name, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	if d.ca {
		if err := setCA(opts.TLSConfig, data[caKey]); err != nil {
			return nil, field.Errorf(d.path, "the Secret %s/%s: %s: %w", d.ref.Namespace, d.ref.Name, caKey, err)
		}
	}
	through, err := dialer.FromURL(d.url, &opts)
	if err != nil {
		return nil, err
	}
	return through.DialContext(ctx, network, address)
}

// setCA leaves the system's roots where there is no CA.
func setCA(config *tls.Config, ca []byte) error {
	if len(ca) == 0 {
		return nil
	}
	certs, err := field.ParseCertificates(ca)
	if err != nil {
		return err
	}
	config.RootCAs = x509.NewCertPool()
	for _, cert := range certs {
		config.RootCAs.AddCert(cert)
	}
	return nil
}

// setCertificate sets none where there is neither a certificate nor a key.
func setCertificate(config *tls.Config, certificate, key []byte) error {
	if len(certificate)+len(key) == 0 {
		return nil
	}
	pair, err := keypair.X509(certificate, key)
	if err != nil {
		return err
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}

// closedError is net.ErrClosed in other words. client-go takes the
// words "use of closed network connection" for a passing fault and repeats a GET ten
// times, a second apart.
type closedError struct{}

// ErrClosed is the error of a client that was closed.
var ErrClosed error = closedError{}

func (closedError) Error() string { return "connect: the client is closed" }

func (closedError) Is(target error) bool { return target == net.ErrClosed }
