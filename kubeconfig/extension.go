package kubeconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The extension of a cluster entry in which [Spec.Build] and [Merge] say what
// the fields of a kubeconfig can't, and which a [Client] honours:
//
//	extensions:
//	- name: causewayproject.github.io/route
//	  extension:
//	    apiVersion: kubeconfig.causewayproject.github.io/v1
//	    kind: Route
//	    endpoints: ["192.0.2.11:6443"]          # after server
//	    gateway: {cluster: default/prod, zone: tunnel.example}
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
// leave it alone. One that does must not act on half of it: a field that it
// doesn't know, and another version, are errors.
const (
	ExtensionName       = "causewayproject.github.io/route"
	ExtensionAPIVersion = "kubeconfig.causewayproject.github.io/v1"
	ExtensionKind       = "Route"
)

// extension is what the extension says, checked. The zero value says nothing.
type extension struct {
	proxyTLS  *ProxyTLS
	header    map[string][]string
	noProxy   string
	endpoints []Endpoint
	gateway   *gatewayName
}

// gatewayName says that the proxy is a tunnel's gateway, and for which
// cluster. It changes nothing of the route.
type gatewayName struct {
	Cluster string `json:"cluster,omitempty"`
	Zone    string `json:"zone,omitempty"`
}

// The form on the wire. Fields are in the order of their names, as the YAML of
// a kubeconfig is.
type (
	wireExtension struct {
		APIVersion string              `json:"apiVersion"`
		Endpoints  []string            `json:"endpoints,omitempty"`
		Gateway    *gatewayName        `json:"gateway,omitempty"`
		Header     map[string][]string `json:"header,omitempty"`
		Kind       string              `json:"kind"`
		NoProxy    string              `json:"noProxy,omitempty"`
		ProxyTLS   *wireProxyTLS       `json:"proxyTLS,omitempty"`
	}
	wireProxyTLS struct {
		CertificateAuthority     string      `json:"certificateAuthority,omitempty"`
		CertificateAuthorityData []byte      `json:"certificateAuthorityData,omitempty"`
		ClientCertificate        string      `json:"clientCertificate,omitempty"`
		ClientKey                string      `json:"clientKey,omitempty"`
		Secret                   *wireSecret `json:"secret,omitempty"`
		ServerName               string      `json:"serverName,omitempty"`
	}
	wireSecret struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
)

// extensionOf is what s says beyond a kubeconfig's own fields.
func extensionOf(s Spec) *extension {
	e := &extension{endpoints: moreEndpoints(s.Endpoint, s.MoreEndpoints)}
	e.setRoute(s.Route)
	return e
}

// setRoute takes r for all but the endpoints.
func (e *extension) setRoute(r Route) {
	e.proxyTLS, e.header, e.noProxy, e.gateway = r.ProxyTLS, r.Header, r.NoProxy, nil
	if r.Tunnel != nil {
		e.gateway = &gatewayName{Cluster: r.Tunnel.Cluster, Zone: strings.Trim(r.Tunnel.Zone, ".")}
	}
}

// object is the extension as a kubeconfig holds it; nil if it says nothing.
func (e *extension) object() *runtime.Unknown {
	wire := wireExtension{
		APIVersion: ExtensionAPIVersion, Kind: ExtensionKind,
		Header: e.header, NoProxy: e.noProxy, Gateway: e.gateway,
	}
	for _, endpoint := range e.endpoints {
		wire.Endpoints = append(wire.Endpoints, endpoint.String())
	}
	if t := e.proxyTLS; t != nil && !t.isZero() {
		wire.ProxyTLS = &wireProxyTLS{
			CertificateAuthority: t.CAFile, CertificateAuthorityData: t.CA,
			ClientCertificate: t.CertificateFile, ClientKey: t.KeyFile, ServerName: t.ServerName,
		}
		if len(t.CA) > 0 {
			wire.ProxyTLS.CertificateAuthority = ""
		}
		if t.Secret != nil {
			wire.ProxyTLS.Secret = &wireSecret{Name: t.Secret.Name, Namespace: t.Secret.Namespace}
		}
	}
	if wire.ProxyTLS == nil && wire.Gateway == nil && wire.NoProxy == "" && len(wire.Header)+len(wire.Endpoints) == 0 {
		return nil
	}
	raw, err := json.Marshal(wire)
	if err != nil {
		panic(err) // strings, bytes, and lists and maps of them
	}
	return &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}
}

func extensionField(cluster string) string {
	return fmt.Sprintf("clusters[%q].extensions[%q]", cluster, ExtensionName)
}

// parseExtension returns what the extension of the cluster entry name says,
// nil if there is none. An error is a [*FieldError] and holds no value.
func parseExtension(name string, cluster *clientcmdapi.Cluster) (*extension, error) {
	object := cluster.Extensions[ExtensionName]
	if object == nil {
		return nil, nil
	}
	field := extensionField(name)
	var raw []byte
	if unknown, ok := object.(*runtime.Unknown); ok {
		raw = unknown.Raw
	} else { // made in this process
		var err error
		if raw, err = json.Marshal(object); err != nil {
			return nil, fieldErrorf(field, "is no JSON object")
		}
	}
	return decodeExtension(field, raw)
}

func decodeExtension(field string, raw []byte) (*extension, error) {
	if err := checkVersion(field, raw); err != nil {
		return nil, err
	}
	var (
		version, kind       string
		e                   = &extension{}
		proxyTLS, gateway   json.RawMessage
		endpoints           []string
		gatewayErr, hostErr error
	)
	err := decodeObject(field, raw, map[string]any{
		"apiVersion": &version, "kind": &kind, "header": &e.header, "noProxy": &e.noProxy,
		"endpoints": &endpoints, "proxyTLS": &proxyTLS, "gateway": &gateway,
	})
	if err != nil {
		return nil, err
	}
	if e.proxyTLS, err = decodeProxyTLS(field+".proxyTLS", proxyTLS); err != nil {
		return nil, err
	}
	if len(gateway) > 0 {
		e.gateway = &gatewayName{}
		gatewayErr = decodeObject(field+".gateway", gateway, map[string]any{"cluster": &e.gateway.Cluster, "zone": &e.gateway.Zone})
	}
	e.endpoints, hostErr = parseEndpoints(field+".endpoints", endpoints)
	err = errors.Join(
		gatewayErr, hostErr,
		fieldError(field+".header", checkHeader(e.header)),
		fieldError(field+".noProxy", checkNoProxy(e.noProxy)),
		e.proxyTLS.check(field+".proxyTLS", wireNames),
	)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// checkVersion comes first: what else there is depends on it.
func checkVersion(field string, raw []byte) error {
	var head struct{ APIVersion, Kind any }
	if err := json.Unmarshal(raw, &head); err != nil {
		return fieldErrorf(field, "is no JSON object")
	}
	version, _ := head.APIVersion.(string)
	kind, _ := head.Kind.(string)
	switch {
	case version == ExtensionAPIVersion && kind == ExtensionKind:
		return nil
	case version == "" || kind == "":
		return fieldErrorf(field, "want apiVersion %s and kind %s", ExtensionAPIVersion, ExtensionKind)
	}
	return fieldErrorf(field, "was not made by this version of Causeway, maybe by a newer one: want apiVersion %s and kind %s", ExtensionAPIVersion, ExtensionKind)
}

func decodeProxyTLS(field string, raw json.RawMessage) (*ProxyTLS, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	t := &ProxyTLS{}
	var secret json.RawMessage
	err := decodeObject(field, raw, map[string]any{
		"certificateAuthorityData": &t.CA, "certificateAuthority": &t.CAFile, "serverName": &t.ServerName,
		"clientCertificate": &t.CertificateFile, "clientKey": &t.KeyFile, "secret": &secret,
	})
	if err != nil || len(secret) == 0 {
		return t, err
	}
	t.Secret = &SecretRef{}
	return t, decodeObject(field+".secret", secret, map[string]any{"namespace": &t.Secret.Namespace, "name": &t.Secret.Name})
}

// decodeObject wants a JSON object with no other fields than these. What
// encoding/json says is left out: it quotes values. A null is an absent field.
func decodeObject(field string, raw []byte, fields map[string]any) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return fieldErrorf(field, "want an object")
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		target, ok := fields[name]
		switch {
		case !ok:
			return fieldErrorf(field, "has a field %q, which this version of Causeway does not know", name)
		case string(object[name]) == "null":
		case json.Unmarshal(object[name], target) != nil:
			return fieldErrorf(field+"."+name, "want %s", wanted(target))
		}
	}
	return nil
}

func wanted(target any) string {
	switch target.(type) {
	case *string:
		return "a string"
	case *[]byte:
		return "base64"
	case *[]string:
		return "a list of strings"
	}
	return "lists of strings by name"
}

func parseEndpoints(field string, texts []string) ([]Endpoint, error) {
	var endpoints []Endpoint
	for i, text := range texts {
		field := fmt.Sprintf("%s[%d]", field, i)
		host, portText, err := net.SplitHostPort(text)
		if err != nil {
			return nil, fieldErrorf(field, "want host:port, an IPv6 address in brackets")
		}
		port, err := parsePort(portText)
		if err != nil {
			return nil, fieldError(field, err)
		}
		if err := checkHost(host); err != nil {
			return nil, fieldError(field, err)
		}
		endpoints = append(endpoints, Endpoint{Host: host, Port: port})
	}
	return endpoints, nil
}

var errPort = errors.New("want a port from 1 to 65535")

func parsePort(text string) (int32, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, errPort
	}
	return int32(port), nil
}
