package entry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// See the constants of package kubeconfig.
const (
	ExtensionName       = "causewayproject.github.io/route"
	ExtensionAPIVersion = "kubeconfig.causewayproject.github.io/v1"
	ExtensionKind       = "Route"
)

// Extension is the extension in the form that a kubeconfig has it. Fields are
// in the order of their names, as the YAML of a kubeconfig is. The zero value
// says nothing.
type Extension struct {
	APIVersion string              `json:"apiVersion"`
	Endpoints  []string            `json:"endpoints,omitempty"` // host:port
	Gateway    *Gateway            `json:"gateway,omitempty"`
	Header     map[string][]string `json:"header,omitempty"`
	Kind       string              `json:"kind"`
	NoProxy    string              `json:"noProxy,omitempty"`
	ProxyTLS   *ProxyTLS           `json:"proxyTLS,omitempty"`
}

// Gateway says that the proxy is a tunnel's gateway, and for which cluster. It
// changes nothing of the route.
type Gateway struct {
	Cluster string `json:"cluster,omitempty"`
	Zone    string `json:"zone,omitempty"` // older versions wrote it
}

// ProxyTLS is kubeconfig.ProxyTLS.
type ProxyTLS struct {
	CertificateAuthority     string     `json:"certificateAuthority,omitempty"`
	CertificateAuthorityData []byte     `json:"certificateAuthorityData,omitempty"`
	ClientCertificate        string     `json:"clientCertificate,omitempty"`
	ClientKey                string     `json:"clientKey,omitempty"`
	Secret                   *SecretRef `json:"secret,omitempty"`
	ServerName               string     `json:"serverName,omitempty"`
}

// SecretRef is kubeconfig.SecretRef.
type SecretRef struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// IsZero reports whether t says nothing.
func (t *ProxyTLS) IsZero() bool {
	return t == nil || len(t.CertificateAuthorityData) == 0 && t.CertificateAuthority == "" && t.ServerName == "" &&
		t.ClientCertificate == "" && t.ClientKey == "" && t.Secret == nil
}

// Object is the extension as a kubeconfig holds it; nil if it says nothing.
func (e Extension) Object() *runtime.Unknown {
	if e.ProxyTLS.IsZero() {
		e.ProxyTLS = nil
	}
	if e.ProxyTLS == nil && e.Gateway == nil && e.NoProxy == "" && len(e.Header)+len(e.Endpoints) == 0 {
		return nil
	}
	e.APIVersion, e.Kind = ExtensionAPIVersion, ExtensionKind
	raw, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings, bytes, and lists and maps of them
	}
	return &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}
}

// ExtensionField is the path of the extension of a cluster entry.
func ExtensionField(cluster string) string {
	return fmt.Sprintf("clusters[%q].extensions[%q]", cluster, ExtensionName)
}

// ParseExtension returns what the extension of the cluster entry name says. Without one it is the
// zero value. An error wraps a *field.Error and holds no value.
func ParseExtension(name string, cluster *clientcmdapi.Cluster) (*Extension, error) {
	object := cluster.Extensions[ExtensionName]
	if object == nil {
		return &Extension{}, nil
	}
	path := ExtensionField(name)
	var raw []byte
	if unknown, ok := object.(*runtime.Unknown); ok {
		raw = unknown.Raw
	} else { // made in this process
		var err error
		if raw, err = json.Marshal(object); err != nil {
			return nil, field.Errorf(path, "is no JSON object")
		}
	}
	return decodeExtension(path, raw)
}

func decodeExtension(path string, raw []byte) (*Extension, error) {
	if err := checkVersion(path, raw); err != nil {
		return nil, err
	}
	var (
		e                           = &Extension{}
		proxyTLS, gateway           json.RawMessage
		gatewayErr, proxyErr, hosts error
	)
	err := decodeObject(path, raw, map[string]any{
		"apiVersion": &e.APIVersion, "kind": &e.Kind, "header": &e.Header, "noProxy": &e.NoProxy,
		"endpoints": &e.Endpoints, "proxyTLS": &proxyTLS, "gateway": &gateway,
	})
	if err != nil {
		return nil, err
	}
	if len(proxyTLS) > 0 {
		if e.ProxyTLS, err = decodeProxyTLS(path+".proxyTLS", proxyTLS); err != nil {
			return nil, err
		}
		proxyErr = e.ProxyTLS.Check(path+".proxyTLS", WireNames)
	}
	if len(gateway) > 0 {
		e.Gateway = &Gateway{}
		gatewayErr = decodeObject(path+".gateway", gateway, map[string]any{"cluster": &e.Gateway.Cluster, "zone": &e.Gateway.Zone})
	}
	for i, text := range e.Endpoints {
		if _, _, err := ParseEndpoint(text); err != nil {
			hosts = field.Wrap(fmt.Sprintf("%s.endpoints[%d]", path, i), err)
			break
		}
	}
	err = errors.Join(
		gatewayErr, hosts,
		field.Wrap(path+".header", field.CheckHeader(e.Header)),
		field.Wrap(path+".noProxy", field.CheckNoProxy(e.NoProxy)),
		proxyErr,
	)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// checkVersion comes first: what else there is depends on it.
func checkVersion(path string, raw []byte) error {
	var head struct{ APIVersion, Kind any }
	if err := json.Unmarshal(raw, &head); err != nil {
		return field.Errorf(path, "is no JSON object")
	}
	version, _ := head.APIVersion.(string)
	kind, _ := head.Kind.(string)
	switch {
	case version == ExtensionAPIVersion && kind == ExtensionKind:
		return nil
	case version == "" || kind == "":
		return field.Errorf(path, "want apiVersion %s and kind %s", ExtensionAPIVersion, ExtensionKind)
	}
	return field.Errorf(path, "was not made by this version of Causeway, maybe by a newer one: want apiVersion %s and kind %s", ExtensionAPIVersion, ExtensionKind)
}

func decodeProxyTLS(path string, raw json.RawMessage) (*ProxyTLS, error) {
	t := &ProxyTLS{}
	var secret json.RawMessage
	err := decodeObject(path, raw, map[string]any{
		"certificateAuthorityData": &t.CertificateAuthorityData, "certificateAuthority": &t.CertificateAuthority,
		"serverName": &t.ServerName, "clientCertificate": &t.ClientCertificate, "clientKey": &t.ClientKey, "secret": &secret,
	})
	if len(t.CertificateAuthorityData) > 0 {
		t.CertificateAuthority = ""
	}
	if err != nil || len(secret) == 0 {
		return t, err
	}
	t.Secret = &SecretRef{}
	return t, decodeObject(path+".secret", secret, map[string]any{"namespace": &t.Secret.Namespace, "name": &t.Secret.Name})
}

// decodeObject wants a JSON object with no other fields than these. What
// encoding/json says is left out: it quotes values. A null is an absent field.
func decodeObject(path string, raw []byte, fields map[string]any) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return field.Errorf(path, "want an object")
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		target, ok := fields[name]
		switch {
		case !ok:
			return field.Errorf(path, "has a field %.100q, which this version of Causeway does not know", name)
		case string(object[name]) == "null":
		case json.Unmarshal(object[name], target) != nil:
			return field.Errorf(path+"."+name, "want %s", wantedType(target))
		}
	}
	return nil
}

func wantedType(target any) string {
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

// ParseEndpoint parses an item of Endpoints.
func ParseEndpoint(text string) (host string, port int32, err error) {
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, errors.New("want host:port, an IPv6 address in brackets")
	}
	if port, err = ParsePort(portText); err != nil {
		return "", 0, err
	}
	return host, port, field.CheckHost(host)
}

// ParsePort parses a port from 1 to 65535.
func ParsePort(text string) (int32, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, errors.New("want a port from 1 to 65535")
	}
	return int32(port), nil
}

// Names are what ProxyTLS's fields are called: CA, ServerName,
// CertificateFile, KeyFile, Secret, Namespace, Name.
type Names [7]string

// In Go, and in a kubeconfig.
var (
	GoNames   = Names{"CA", "ServerName", "CertificateFile", "KeyFile", "Secret", "Namespace", "Name"}
	WireNames = Names{"certificateAuthorityData", "serverName", "clientCertificate", "clientKey", "secret", "namespace", "name"}
)

// Check opens no files: they may be elsewhere.
func (t *ProxyTLS) Check(path string, names Names) error {
	at := func(i int) string { return path + "." + names[i] }
	var caErr, nameErr, pairErr, secretErr error
	if len(t.CertificateAuthorityData) > 0 {
		_, err := field.ParseCertificates(t.CertificateAuthorityData)
		caErr = field.Wrap(at(0), err)
	}
	if t.ServerName != "" {
		nameErr = field.Wrap(at(1), field.CheckHost(t.ServerName))
	}
	switch {
	case t.ClientCertificate != "" && t.ClientKey == "":
		pairErr = field.Errorf(at(3), "%w along with %s", field.ErrRequired, names[2])
	case t.ClientCertificate == "" && t.ClientKey != "":
		pairErr = field.Errorf(at(2), "%w along with %s", field.ErrRequired, names[3])
	case t.ClientCertificate != "" && t.Secret != nil:
		pairErr = field.Errorf(at(4), "is set along with %s; want one client certificate", names[2])
	}
	if t.Secret != nil {
		secret := at(4) + "."
		secretErr = errors.Join(
			field.Wrap(secret+names[5], field.CheckNamespace(t.Secret.Namespace)),
			field.Wrap(secret+names[6], field.CheckObjectName(t.Secret.Name)),
		)
	}
	return errors.Join(caErr, nameErr, pairErr, secretErr)
}
