package kubeconfig

import (
	"crypto/x509"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// mergeChanges are the parts of a cluster entry that setCluster changed.
type mergeChanges struct{ endpoint, ca, route bool }

func (m *merge) setCluster() (mergeChanges, error) {
	c := mergeChanges{endpoint: m.setServer(), ca: m.setCA()}
	name := m.setServerName()
	proxy := m.setProxyURL()
	more, beyond, err := m.setExtension(c.endpoint)
	c.endpoint = c.endpoint || more
	c.route = name || proxy || beyond
	return c, err
}

func (m *merge) setServer() bool {
	e := m.spec.Endpoint
	if (e == Endpoint{}) || e.canonicalEndpoint() == serverEndpoint(m.cluster.Server) {
		return false
	}
	m.cluster.Server = "https://" + e.String()
	return true
}

// serverEndpoint returns where an https server is; zero if it is no https URL.
func serverEndpoint(server string) Endpoint {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.User != nil {
		return Endpoint{}
	}
	e := Endpoint{Host: u.Hostname(), Port: 443}
	if u.Port() != "" {
		port, err := entry.ParsePort(u.Port())
		if err != nil {
			return Endpoint{}
		}
		e.Port = port
	}
	return e.canonicalEndpoint()
}

// canonicalEndpoint is one spelling of several.
func (e Endpoint) canonicalEndpoint() Endpoint {
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
		if have, err := field.ParseCertificates(c.CertificateAuthorityData); err == nil && sameCertificates(have, m.ca) {
			return false
		}
	}
	c.CertificateAuthorityData = field.EncodeCertificates(m.ca)
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

// setExtension reports whether the endpoints changed, and whether the proxy's fields
// did. An extension that can't be read is an error only if it matters.
func (m *merge) setExtension(moved bool) (more, route bool, err error) {
	s := m.spec
	if s.Route.isZero() && s.MoreEndpoints == nil && !moved {
		return false, false, nil
	}
	was, err := entry.ParseExtension(m.current.ClusterName, m.cluster)
	if err != nil {
		return false, false, err
	}
	if was == nil {
		was = &entry.Extension{}
	}
	is := *was
	endpoints := s.MoreEndpoints
	switch {
	case endpoints != nil:
	case moved && s.Route.Tunnel != nil && s.Endpoint.Host == s.Route.Tunnel.server():
		// The present ones belong to the previous server. The gateway doesn't know them.
	default:
		for _, text := range was.Endpoints {
			host, port, _ := entry.ParseEndpoint(text)
			endpoints = append(endpoints, Endpoint{Host: host, Port: port})
		}
	}
	is.Endpoints = moreEndpoints(serverEndpoint(m.cluster.Server), endpoints)
	more = m.putExtension(*was, is)
	after := is
	if !s.Route.isZero() {
		s.Route.writeTo(&after)
	}
	return more, m.putExtension(is, after), nil
}

// putExtension reports whether is says something else than was, and puts it
// into the cluster entry if so.
func (m *merge) putExtension(was, is entry.Extension) bool {
	before, after := was.Object(), is.Object()
	switch {
	case reflect.DeepEqual(before, after):
		return false
	case after == nil:
		delete(m.cluster.Extensions, ExtensionName)
		return true
	case m.cluster.Extensions == nil:
		m.cluster.Extensions = map[string]runtime.Object{}
	}
	m.cluster.Extensions[ExtensionName] = after
	return true
}
