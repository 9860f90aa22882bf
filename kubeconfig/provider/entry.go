package provider

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/causewayproject/causeway/kubeconfig"
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

// same compares what the entry has.
func (r route) same(o route) bool {
	return r.Server == o.Server && r.ProxyURL == o.ProxyURL && r.TLSServerName == o.TLSServerName && bytes.Equal(r.Extension, o.Extension)
}

// equal compares all.
func (r route) equal(o route) bool {
	return r.same(o) && r.Natural == o.Natural && r.Endpoint == o.Endpoint
}

// digestOf names a route by what the entry has of it.
func digestOf(r route) string {
	return digest([]byte(r.Server), []byte(r.ProxyURL), []byte(r.TLSServerName), r.Extension)
}

// withoutUser is the route without its credentials.
func (r route) withoutUser() route {
	if u, err := url.Parse(r.ProxyURL); err == nil {
		u.User = nil
		r.ProxyURL = u.String()
	}
	return r
}

// document is a kubeconfig of which the current context's entries are known.
// It never changes.
type document struct {
	bytes   []byte
	root    *yaml.Node
	cluster *yaml.Node // a mapping
	user    *yaml.Node // nil if there is none
	current route
}

var errNotYAML = errors.New("the kubeconfig can't be read: it is no YAML, or no kubeconfig")

// parseDocument says what is wrong, without quoting: it is all secret.
func parseDocument(data []byte) (*document, error) {
	d := &document{bytes: data, root: &yaml.Node{}}
	if yaml.Unmarshal(data, d.root) != nil || len(d.root.Content) == 0 {
		return nil, errNotYAML
	}
	tree := d.root.Content[0]
	name := text(tree, "current-context")
	if name == "" {
		return nil, errors.New("the kubeconfig has no current-context")
	}
	current := named(tree, "contexts", name, "context")
	if current == nil {
		return nil, errors.New("the kubeconfig has no context of its current-context's name")
	}
	if d.cluster = named(tree, "clusters", text(current, "cluster"), "cluster"); d.cluster == nil {
		return nil, errors.New("the kubeconfig has no cluster of its current context")
	}
	if text(d.cluster, fieldServer) == "" {
		return nil, errors.New("the kubeconfig has no server")
	}
	d.user = named(tree, "users", text(current, "user"), "user")
	d.current = route{
		Server: text(d.cluster, fieldServer), ProxyURL: text(d.cluster, fieldProxyURL), TLSServerName: text(d.cluster, fieldTLSServerName),
	}
	var extension any
	if n := named(d.cluster, fieldExtensions, kubeconfig.ExtensionName, fieldExtension); n != nil {
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

// child returns the value of a key of a mapping, nil if there is none.
func child(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func text(mapping *yaml.Node, key string) string {
	n := child(mapping, key)
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

// named returns the mapping under key in the entry of that name; nil if there
// is none.
func named(mapping *yaml.Node, list, name, key string) *yaml.Node {
	entries := child(mapping, list)
	if entries == nil || entries.Kind != yaml.SequenceNode {
		return nil
	}
	for _, entry := range entries.Content {
		if text(entry, "name") == name {
			if n := child(entry, key); n != nil && n.Kind == yaml.MappingNode {
				return n
			}
		}
	}
	return nil
}

// data returns what a field holds in base64; nil if it holds nothing.
func data(mapping *yaml.Node, field string) []byte {
	decoded, err := base64.StdEncoding.DecodeString(text(mapping, field))
	if err != nil || len(decoded) == 0 {
		return nil
	}
	return decoded
}

// with returns the kubeconfig with the route in place of its own: the same
// bytes where that is the route already.
func (d *document) with(r route) ([]byte, error) {
	if d.current.same(r) {
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
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := errors.Join(encoder.Encode(own.root), encoder.Close()); err != nil {
		return nil, errNotYAML
	}
	return b.Bytes(), nil
}

func setText(mapping *yaml.Node, key, value string) {
	switch n := child(mapping, key); {
	case value == "":
		set(mapping, key, nil)
	case n == nil || n.Value != value || n.Kind != yaml.ScalarNode:
		node := &yaml.Node{}
		node.SetString(value)
		set(mapping, key, node)
	}
}

// set puts a new key where it is in the order of keys. A nil value removes.
func set(mapping *yaml.Node, key string, value *yaml.Node) {
	at := len(mapping.Content)
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		name := mapping.Content[i].Value
		switch {
		case name == key && value == nil:
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
			return
		case name == key:
			mapping.Content[i+1] = value
			return
		case name > key && at == len(mapping.Content):
			at = i
		}
	}
	if value != nil {
		name := &yaml.Node{}
		name.SetString(key)
		mapping.Content = slices.Insert(mapping.Content, at, name, value)
	}
}

// setExtension leaves those of others as they are.
func setExtension(cluster *yaml.Node, value json.RawMessage) error {
	list := child(cluster, fieldExtensions)
	if list == nil || list.Kind != yaml.SequenceNode {
		list = &yaml.Node{Kind: yaml.SequenceNode}
	}
	at := slices.IndexFunc(list.Content, func(n *yaml.Node) bool { return text(n, "name") == kubeconfig.ExtensionName })
	if len(value) == 0 {
		if at >= 0 {
			list.Content = slices.Delete(list.Content, at, at+1)
		}
		if len(list.Content) == 0 {
			set(cluster, fieldExtensions, nil)
		}
		return nil
	}
	var extension any
	entry := &yaml.Node{}
	if json.Unmarshal(value, &extension) != nil || entry.Encode(map[string]any{"name": kubeconfig.ExtensionName, fieldExtension: extension}) != nil {
		return errNotYAML
	}
	if at >= 0 {
		list.Content[at] = entry
	} else {
		list.Content = append(list.Content, entry)
	}
	set(cluster, fieldExtensions, list)
	return nil
}
