package kubeconfig

import (
	"errors"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// Route is how an API server is reached.
//
// # https proxies and kubectl
//
// A kubeconfig has no field for a proxy's own CA. kubectl, and every program
// that uses client-go unchanged, verifies an https proxy with the settings
// meant for the API server: the proxy's certificate has to be issued by Spec.CA,
// and to be valid for Spec.TLSServerName where that is set. Append the proxy's
// CA to Spec.CA for them, and know what that says: the owner of the proxy's
// CA can then pose as the API server. If the proxy asks for a client
// certificate, such programs also show it the one for the API server.
//
// A client of package connect does neither: see connect.Options.ProxyTLS.
type Route struct {
	// ProxyURL is the URL of a proxy, scheme://[user[:password]@]host[:port],
	// as [dialer.ParseURL] takes it: http, https, socks5 or socks5h. If empty,
	// the API server is reached directly.
	//
	// kubeconfigs know no socks5h, and their socks5 lets the proxy resolve
	// names. Both are written as socks5, and both mean that.
	ProxyURL string
	// Tunnel is a way through a gateway to a cluster that can't be reached otherwise.
	// If nil, no tunnel is used. It can't be set along with ProxyURL.
	Tunnel *Tunnel
	// Direct says that nothing lies between, as the zero Route does, and makes
	// [Merge] remove a present proxy-url: a zero Route leaves it. It can't
	// be set along with ProxyURL or Tunnel.
	Direct bool

	// The fields below belong to the proxy or gateway, and are an error without one.
	// They are written to the cluster entry's extension ([ExtensionName]): a Client honours
	// them, other programs don't know them.

	// NoProxy is a no_proxy list (package noproxy): an API server whose address
	// is on it is reached directly. An item that covers nothing is an
	// error. If empty, nothing is on it.
	NoProxy string
	// Header is sent to an http or https proxy along with each CONNECT, such
	// as Proxy-Authorization with another scheme than Basic, where ProxyURL has
	// no user. Host and what frames a body can't be set. Values are secret.
	Header map[string][]string
	// ProxyTLS has the TLS settings of an https proxy. If nil, the system's roots and no client
	// certificate.
	ProxyTLS *ProxyTLS
}

// ProxyTLS says how a Client verifies an https proxy and what it shows to it.
// Keys are named, not held.
type ProxyTLS struct {
	// CA holds PEM certificates. CAFile is a file of them. If both are empty,
	// the system's roots; CA wins.
	CA     []byte
	CAFile string
	// ServerName is the name in the proxy's certificate. If empty, the host of
	// ProxyURL.
	ServerName string
	// CertificateFile and KeyFile are PEM files of the client certificate for
	// the proxy. If both are empty, Secret.
	CertificateFile, KeyFile string
	// Secret names a Secret with the client certificate (tls.crt, tls.key), and
	// a CA (ca.crt) if CA and CAFile are empty. It can't be set along with
	// files. If nil, no Secret is read. See connect.Options.ReadSecret.
	Secret *SecretRef
}

// SecretRef names a Secret.
type SecretRef struct {
	Namespace, Name string
}

// proxyURL returns the route as a kubeconfig's proxy-url.
func (r Route) proxyURL() (string, error) {
	switch {
	case r.Tunnel != nil && r.ProxyURL == "":
		return r.Tunnel.proxyURL(), nil // checked elsewhere
	case r.ProxyURL == "":
		return "", nil
	}
	u, err := field.ParseProxyURL(r.ProxyURL)
	if err != nil {
		return "", err
	}
	// This also checks what the scheme can carry of the credentials.
	if _, err := dialer.FromURL(u, nil); err != nil {
		return "", err
	}
	return u.String(), nil
}

// checkBeyond checks the fields that are in the extension, and Direct.
func (r Route) checkBeyond() error {
	proxy := r.ProxyURL
	if r.Tunnel != nil {
		proxy = r.Tunnel.proxyURL()
	}
	var direct error
	if r.Direct && r.viaProxy() {
		direct = field.Errorf("Route", "Direct is set along with ProxyURL or Tunnel; want one of them")
	}
	return errors.Join(direct,
		field.Wrap("Route.NoProxy", r.checkNoProxy()),
		field.Wrap("Route.Header", r.checkHeader(proxy)),
		r.checkProxyTLS(proxy),
	)
}

var errNoProxySet = errors.New("is for a proxy, and neither ProxyURL nor Tunnel is set")

func (r Route) viaProxy() bool { return r.ProxyURL != "" || r.Tunnel != nil }

func (r Route) checkNoProxy() error {
	if r.NoProxy != "" && !r.viaProxy() {
		return errNoProxySet
	}
	return field.CheckNoProxy(r.NoProxy)
}

// checkHeader leaves out what is wrong with the proxy itself.
func (r Route) checkHeader(proxy string) error {
	if len(r.Header) == 0 {
		return nil
	}
	if !r.viaProxy() {
		return errNoProxySet
	}
	if err := field.CheckHeader(r.Header); err != nil {
		return err
	}
	u, err := field.ParseProxyURL(proxy)
	switch {
	case err != nil:
	case u.Scheme == "socks5":
		return errors.New("is for an http or https proxy: SOCKS5 has no header")
	case u.User != nil && field.HasHeader(r.Header, "Proxy-Authorization"):
		return errors.New("holds Proxy-Authorization, and there are a user and a password for the proxy; want one of them")
	}
	return nil
}

func (r Route) checkProxyTLS(proxy string) error {
	if r.ProxyTLS == nil {
		return nil
	}
	const path = "Route.ProxyTLS"
	if !r.viaProxy() {
		return field.Wrap(path, errNoProxySet)
	}
	if u, err := field.ParseProxyURL(proxy); err == nil && u.Scheme != "https" {
		return field.Errorf(path, "is for an https proxy, not for %s", u.Scheme)
	}
	return r.ProxyTLS.extension().Check(path, entry.GoNames)
}

// The extension of a cluster entry in which [Spec.Build] and [Merge] say what
// the fields of a kubeconfig can't, and which package connect honours:
//
//	extensions:
//	- name: causewayproject.github.io/route
//	  extension:
//	    apiVersion: kubeconfig.causewayproject.github.io/v1
//	    kind: Route
//	    endpoints: ["192.0.2.11:6443"]          # after server
//	    gateway: {cluster: default/prod}
//	    header: {X-Tenant: [blue]}
//	    noProxy: 10.0.0.0/8
//	    proxyTLS:
//	      certificateAuthorityData: <base64>    # or certificateAuthority: <file>
//	      serverName: proxy.example
//	      clientCertificate: <file>
//	      clientKey: <file>
//	      secret: {namespace: clusters, name: proxy-client}
//
// Everything but apiVersion and kind is optional. Programs that don't know it
// ignore it. A program that does must not act on half of it: a field that it
// doesn't know, and another version, are errors.
const (
	ExtensionName       = entry.ExtensionName
	ExtensionAPIVersion = entry.ExtensionAPIVersion
	ExtensionKind       = entry.ExtensionKind
)

// extension returns what s says beyond a kubeconfig's own fields.
func (s Spec) extension() entry.Extension {
	e := entry.Extension{Endpoints: moreEndpoints(s.Endpoint, s.MoreEndpoints)}
	s.Route.writeTo(&e)
	return e
}

// writeTo replaces all of e but the endpoints.
func (r Route) writeTo(e *entry.Extension) {
	e.ProxyTLS, e.Header, e.NoProxy, e.Gateway = r.ProxyTLS.extension(), r.Header, r.NoProxy, nil
	if r.Tunnel != nil {
		e.Gateway = &entry.Gateway{Cluster: r.Tunnel.Cluster}
	}
}

// extension returns t as the extension has it.
func (t *ProxyTLS) extension() *entry.ProxyTLS {
	if t == nil {
		return nil
	}
	e := &entry.ProxyTLS{
		CertificateAuthority: t.CAFile, CertificateAuthorityData: t.CA,
		ClientCertificate: t.CertificateFile, ClientKey: t.KeyFile, ServerName: t.ServerName,
	}
	if len(t.CA) > 0 {
		e.CertificateAuthority = ""
	}
	if t.Secret != nil {
		e.Secret = &entry.SecretRef{Name: t.Secret.Name, Namespace: t.Secret.Namespace}
	}
	return e
}
