package kubeconfig

import (
	"crypto/x509"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/hostport"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

func (m *merge) setCluster() error {
	moved := m.setServer()
	m.setCA()
	// A tunnel that has no name to say is verified by that of its server.
	if name := m.spec.TLSServerName; name != "" || m.spec.Route.Tunnel != nil {
		m.cluster.TLSServerName = name
	}
	m.setProxyURL()
	return m.setExtension(moved)
}

// setServer reports whether the server is at another endpoint now.
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
	u, err := hostport.ParseServer(server)
	if err != nil || u.Scheme != "https" {
		return Endpoint{}
	}
	port, _ := entry.ParsePort(u.Port())
	return Endpoint{Host: u.Hostname(), Port: port}.canonicalEndpoint()
}

// canonicalEndpoint is one spelling of several.
func (e Endpoint) canonicalEndpoint() Endpoint {
	if addr, err := netip.ParseAddr(e.Host); err == nil {
		e.Host = addr.String()
	}
	e.Host = strings.ToLower(e.Host)
	return e
}

func (m *merge) setCA() {
	c := m.cluster
	if m.ca == nil {
		return
	}
	if c.CertificateAuthority == "" && !c.InsecureSkipTLSVerify {
		if have, err := field.ParseCertificates(c.CertificateAuthorityData); err == nil && sameCertificates(have, m.ca) {
			return
		}
	}
	c.CertificateAuthorityData = field.EncodeCertificates(m.ca)
	c.CertificateAuthority, c.InsecureSkipTLSVerify = "", false
}

// sameCertificates compares them as sets.
func sameCertificates(a, b []*x509.Certificate) bool {
	in := func(all []*x509.Certificate) func(*x509.Certificate) bool {
		return func(c *x509.Certificate) bool { return !slices.ContainsFunc(all, c.Equal) }
	}
	return !slices.ContainsFunc(a, in(b)) && !slices.ContainsFunc(b, in(a))
}

// setProxyURL keeps another spelling of the same URL.
func (m *merge) setProxyURL() {
	if m.spec.Route.isZero() {
		return
	}
	if u, err := dialer.ParseURL(m.cluster.ProxyURL); err != nil || u.String() != m.proxyURL {
		m.cluster.ProxyURL = m.proxyURL
	}
}

// setExtension takes an extension that can't be read for an error only if it matters.
func (m *merge) setExtension(moved bool) error {
	s := m.spec
	if s.Route.isZero() && s.MoreEndpoints == nil && !moved {
		return nil
	}
	was, err := entry.ParseExtension(m.current.ClusterName, m.cluster)
	if err != nil {
		return err
	}
	is := *was
	endpoints := s.MoreEndpoints
	switch {
	case endpoints != nil:
	case moved && s.Route.Tunnel != nil && s.Endpoint.Host == inCluster:
		// The present ones belong to the previous server. The gateway doesn't know them.
	default:
		for _, text := range was.Endpoints {
			host, port, _ := entry.ParseEndpoint(text)
			endpoints = append(endpoints, Endpoint{Host: host, Port: port})
		}
	}
	is.Endpoints = moreEndpoints(serverEndpoint(m.cluster.Server), endpoints)
	if !s.Route.isZero() {
		s.Route.writeTo(&is)
	}
	after := is.Object()
	switch {
	case reflect.DeepEqual(was.Object(), after):
		return nil
	case after == nil:
		delete(m.cluster.Extensions, ExtensionName)
		return nil
	case m.cluster.Extensions == nil:
		m.cluster.Extensions = map[string]runtime.Object{}
	}
	m.cluster.Extensions[ExtensionName] = after
	return nil
}
