package kubeconfig

import (
	"bytes"
	"crypto/x509"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/causewayproject/causeway/dialer"
)

// changes are the parts of a cluster entry that setCluster changed.
type changes struct{ endpoint, ca, route bool }

func (m *merge) setCluster() (changes, error) {
	c := changes{endpoint: m.setServer(), ca: m.setCA()}
	name := m.setServerName()
	proxy := m.setProxyURL()
	more, beyond, err := m.setExtension(c.endpoint)
	c.endpoint = c.endpoint || more
	c.route = name || proxy || beyond
	return c, err
}

func (m *merge) setServer() bool {
	e := m.spec.Endpoint
	if (e == Endpoint{}) || e.canonical() == serverEndpoint(m.cluster.Server) {
		return false
	}
	m.cluster.Server = "https://" + e.String()
	return true
}

// serverEndpoint returns where an https server is; zero if it is none.
func serverEndpoint(server string) Endpoint {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.User != nil {
		return Endpoint{}
	}
	e := Endpoint{Host: u.Hostname(), Port: 443}
	if u.Port() != "" {
		port, err := parsePort(u.Port())
		if err != nil {
			return Endpoint{}
		}
		e.Port = port
	}
	return e.canonical()
}

// canonical is one spelling of several.
func (e Endpoint) canonical() Endpoint {
	if addr, err := netip.ParseAddr(e.Host); err == nil {
		e.Host = addr.String()
	}
	e.Host = strings.ToLower(e.Host)
	return e
}

func (m *merge) setCA() bool {
	c := m.cluster
	if m.ca == nil {
		return false
	}
	if c.CertificateAuthority == "" && !c.InsecureSkipTLSVerify {
		if have, err := parseCertificates(c.CertificateAuthorityData); err == nil && sameCertificates(have, m.ca) {
			return false
		}
	}
	c.CertificateAuthorityData = encodeCertificates(m.ca)
	c.CertificateAuthority, c.InsecureSkipTLSVerify = "", false
	return true
}

// sameCertificates compares them as sets.
func sameCertificates(a, b []*x509.Certificate) bool {
	in := func(all []*x509.Certificate) func(*x509.Certificate) bool {
		return func(c *x509.Certificate) bool { return !slices.ContainsFunc(all, c.Equal) }
	}
	return !slices.ContainsFunc(a, in(b)) && !slices.ContainsFunc(b, in(a))
}

func (m *merge) setServerName() bool {
	name := m.spec.TLSServerName
	// A tunnel that has no name to say is verified by that of its server.
	if name == "" && m.spec.Route.Tunnel == nil || name == m.cluster.TLSServerName {
		return false
	}
	m.cluster.TLSServerName = name
	return true
}

func (m *merge) setProxyURL() bool {
	if m.spec.Route.isZero() || m.cluster.ProxyURL == m.proxyURL {
		return false
	}
	if u, err := dialer.ParseURL(m.cluster.ProxyURL); err == nil && u.String() == m.proxyURL {
		return false
	}
	m.cluster.ProxyURL = m.proxyURL
	return true
}

// setExtension says whether the endpoints changed, and whether what is about
// the proxy did. One that can't be read is an error only if it matters.
func (m *merge) setExtension(moved bool) (more, route bool, err error) {
	s := m.spec
	if s.Route.isZero() && s.MoreEndpoints == nil && !moved {
		return false, false, nil
	}
	was, err := parseExtension(m.entries.clusterName, m.cluster)
	if err != nil {
		return false, false, err
	}
	if was == nil {
		was = &extension{}
	}
	is := *was
	endpoints := was.endpoints
	if s.MoreEndpoints != nil {
		endpoints = s.MoreEndpoints
	} else if moved && s.Route.Tunnel != nil && s.Endpoint.Host == s.Route.Tunnel.server() {
		endpoints = nil // of the server before, and no names of the gateway's
	}
	is.endpoints = moreEndpoints(serverEndpoint(m.cluster.Server), endpoints)
	if more = !sameExtension(was, &is); more {
		m.putExtension(&is)
	}
	was = &is
	after := is
	if !s.Route.isZero() {
		after.setRoute(s.Route)
	}
	if route = !sameExtension(was, &after); route {
		m.putExtension(&after)
	}
	return more, route, nil
}

func sameExtension(a, b *extension) bool {
	x, y := a.object(), b.object()
	if x == nil || y == nil {
		return x == y
	}
	return bytes.Equal(x.Raw, y.Raw)
}

func (m *merge) putExtension(e *extension) {
	object := e.object()
	if object == nil {
		delete(m.cluster.Extensions, ExtensionName)
		return
	}
	if m.cluster.Extensions == nil {
		m.cluster.Extensions = map[string]runtime.Object{}
	}
	m.cluster.Extensions[ExtensionName] = object
}
