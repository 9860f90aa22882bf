package provider

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"go.yaml.in/yaml/v3"

	"github.com/causewayproject/causeway/internal/yamledit"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
)

// The fields of a kubeconfig's cluster entry that make up a route.
const (
	fieldServer        = "server"
	fieldProxyURL      = "proxy-url"
	fieldTLSServerName = "tls-server-name"
	fieldExtensions    = "extensions"
	fieldExtension     = "extension"
)

// route is a route as a kubeconfig's cluster entry has it. It holds secrets.
type route struct {
	Server        string          `json:"server"`
	ProxyURL      string          `json:"proxyURL,omitempty"`
	TLSServerName string          `json:"tlsServerName,omitempty"`
	Extension     json.RawMessage `json:"extension,omitempty"` // ours; keys in order

	// Natural is the server without rewriting, where Server is a rewritten one.
	Natural string `json:"natural,omitempty"`
	// Endpoint is the Cluster's from which the natural server was made; empty if
	// somebody chose that server.
	Endpoint string `json:"endpoint,omitempty"`
}

// String says where the route leads, without its secrets.
func (r route) String() string {
	var e entry.Extension
	_ = json.Unmarshal(r.Extension, &e) // one of a newer version says nothing here
	text := kubeconfig.Route{ProxyURL: r.ProxyURL}.String()
	if e.Gateway != nil {
		text = kubeconfig.Tunnel{Gateway: r.ProxyURL, Cluster: e.Gateway.Cluster}.String()
	}
	if r.Natural != "" {
		text += ", to " + r.Server
	}
	return text
}

// sameEntry compares the fields that the entry has.
func (r route) sameEntry(o route) bool {
	return r.Server == o.Server && r.ProxyURL == o.ProxyURL && r.TLSServerName == o.TLSServerName && bytes.Equal(r.Extension, o.Extension)
}

// leadsThrough reports whether the route is more than the API server's own address: a proxy,
// a gateway, or another server that stands before it.
func (r route) leadsThrough() bool { return r.ProxyURL != "" || r.Natural != "" }

// losesWay reports whether r lacks the proxy that before has, or leads directly where before does not.
func (r route) losesWay(before route) bool {
	return before.ProxyURL != "" && r.ProxyURL == "" || before.leadsThrough() && !r.leadsThrough()
}

// routeDigest returns a hash of the fields that the entry has.
func routeDigest(r route) string {
	return hashParts([]byte(r.Server), []byte(r.ProxyURL), []byte(r.TLSServerName), r.Extension)
}

// probeKey identifies the way of the kubeconfig with r. The user's credentials are left out: their
// owner may renew them more often than a probe takes.
func (d *document) probeKey(r route) string {
	parts := [][]byte{[]byte(routeDigest(r))}
	for _, name := range []string{"certificate-authority-data", "certificate-authority", "insecure-skip-tls-verify"} {
		parts = append(parts, []byte(scalarText(d.cluster, name)))
	}
	return hashParts(parts...)
}

// withoutUser returns the route without its credentials.
func (r route) withoutUser() route {
	if u, err := url.Parse(r.ProxyURL); err == nil {
		u.User = nil
		r.ProxyURL = u.String()
	}
	return r
}

// document is a parsed kubeconfig with its current context's entries. It never
// changes.
type document struct {
	bytes    []byte
	root     *yaml.Node
	cluster  *yaml.Node // a mapping
	user     *yaml.Node // nil if the kubeconfig has no user entry
	userName string
	current  route
}

var errNotYAML = errors.New("the kubeconfig can't be read: it is no YAML, or no kubeconfig")

// parseDocument says what is wrong, without quoting: it is all secret.
func parseDocument(data []byte) (*document, error) {
	root, tree, err := entry.ParseText(data)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig %w", err)
	}
	d := &document{bytes: data, root: root}
	name := scalarText(tree, "current-context")
	if name == "" {
		return nil, errors.New("the kubeconfig has no current-context")
	}
	current := namedMapping(tree, "contexts", name, "context")
	if current == nil {
		return nil, errors.New("the kubeconfig has no context of its current-context's name")
	}
	if d.cluster = namedMapping(tree, "clusters", scalarText(current, "cluster"), "cluster"); d.cluster == nil {
		return nil, errors.New("the kubeconfig has no cluster of its current context")
	}
	if scalarText(d.cluster, fieldServer) == "" {
		return nil, errors.New("the kubeconfig has no server")
	}
	d.userName = scalarText(current, "user")
	d.user = namedMapping(tree, "users", d.userName, "user")
	d.current = route{
		Server: scalarText(d.cluster, fieldServer), ProxyURL: scalarText(d.cluster, fieldProxyURL), TLSServerName: scalarText(d.cluster, fieldTLSServerName),
	}
	var extension any
	if n := namedMapping(d.cluster, fieldExtensions, kubeconfig.ExtensionName, fieldExtension); n != nil {
		if n.Decode(&extension) != nil {
			return nil, errNotYAML
		}
		var err error
		if d.current.Extension, err = json.Marshal(extension); err != nil {
			return nil, errNotYAML
		}
	}
	return d, nil
}

// localUser returns the field by which the user names a program or a file, empty without
// one, and whether it is a program. It is what entry.LoadForeignRoute takes the credentials away for.
func (d *document) localUser() (field string, program bool) {
	for _, key := range []string{"exec", "auth-provider", "tokenFile", "client-certificate", "client-key"} {
		if n := yamledit.Child(d.user, key); n != nil && (n.Kind != yaml.ScalarNode || n.Value != "") {
			return fmt.Sprintf("users[%.100q].%s", d.userName, key), key == "exec" || key == "auth-provider"
		}
	}
	return "", false
}

// scalarText returns the scalar under key; empty without one.
func scalarText(mapping *yaml.Node, key string) string {
	if n := yamledit.Child(mapping, key); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

// namedMapping returns the mapping under key in the entry of that name; nil without
// one.
func namedMapping(mapping *yaml.Node, list, name, key string) *yaml.Node {
	item, _ := yamledit.Named(yamledit.Child(mapping, list), name)
	if n := yamledit.Child(item, key); n != nil && n.Kind == yaml.MappingNode {
		return n
	}
	return nil
}

// base64Data decodes a field; nil if it is empty or not base64.
func base64Data(mapping *yaml.Node, field string) []byte {
	decoded, err := base64.StdEncoding.DecodeString(scalarText(mapping, field))
	if err != nil || len(decoded) == 0 {
		return nil
	}
	return decoded
}

// withRoute returns the kubeconfig with r in place of its own route, and the same
// bytes if that route is r already.
func (d *document) withRoute(r route) ([]byte, error) {
	if d.current.sameEntry(r) {
		return d.bytes, nil
	}
	own, err := parseDocument(d.bytes) // to be changed
	if err != nil {
		return nil, err
	}
	setText(own.cluster, fieldServer, r.Server)
	setText(own.cluster, fieldProxyURL, r.ProxyURL)
	setText(own.cluster, fieldTLSServerName, r.TLSServerName)
	if err := setExtension(own.cluster, r.Extension); err != nil {
		return nil, err
	}
	text, err := yamledit.Encode(own.root)
	if err != nil {
		return nil, errNotYAML
	}
	return text, nil
}

// setText removes the key if the value is empty.
func setText(mapping *yaml.Node, key, value string) {
	switch n := yamledit.Child(mapping, key); {
	case value == "":
		yamledit.DropChild(mapping, key)
	case n == nil || n.Value != value || n.Kind != yaml.ScalarNode:
		node := &yaml.Node{}
		node.SetString(value)
		yamledit.SetChild(mapping, key, node)
	}
}

// setExtension leaves other programs' extensions as they are.
func setExtension(cluster *yaml.Node, value json.RawMessage) error {
	if len(value) == 0 {
		yamledit.DropNamed(cluster, fieldExtensions, kubeconfig.ExtensionName)
		return nil
	}
	var extension any
	node := &yaml.Node{}
	if json.Unmarshal(value, &extension) != nil || node.Encode(extension) != nil {
		return errNotYAML
	}
	yamledit.SetNamed(cluster, fieldExtensions, kubeconfig.ExtensionName, fieldExtension, node)
	return nil
}
