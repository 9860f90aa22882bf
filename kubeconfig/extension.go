package kubeconfig

import "github.com/causewayproject/causeway/kubeconfig/internal/entry"

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
