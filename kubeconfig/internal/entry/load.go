// Package entry reads the entries of a kubeconfig: those of its current
// context, and our extension of the cluster's.
package entry

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/yamledit"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

var errNotYAML = errors.New("is not YAML, or not a mapping")

// Load is kubeconfig.Load. Its errors complete a sentence about the text.
func Load(data []byte) (*clientcmdapi.Config, error) {
	if len(data) == 0 {
		return nil, errors.New("is empty")
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, explainUnreadable(data)
	}
	return config, nil
}

// explainUnreadable takes the place of clientcmd's error, which quotes what it can't
// read: a password, maybe. Of two entries of one name it quotes all that they hold.
func explainUnreadable(data []byte) error {
	var document yaml.Node // to decode it further would take the square of the number of keys
	if yaml.Unmarshal(data, &document) != nil || len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return errNotYAML
	}
	for _, kind := range []string{"clusters", "contexts", "users"} {
		list := yamledit.Child(document.Content[0], kind)
		if list == nil || list.Kind != yaml.SequenceNode {
			continue
		}
		seen := make(map[string]bool)
		for _, item := range list.Content {
			name := yamledit.Child(item, "name")
			switch {
			case name == nil:
			case seen[name.Value]:
				return fmt.Errorf("has two %s of the name %.100q", kind, name.Value)
			default:
				seen[name.Value] = true
			}
		}
	}
	return errors.New("is not a kubeconfig: a field has another type or value")
}

// The bounds of a text that somebody else wrote, before it is parsed.
const (
	maxText = 1 << 20 // bytes: a Secret holds no more
	// maxSyntax is how many characters may make nodes of YAML, of 200 bytes each in memory:
	// as many as 1,000 clusters with their users and contexts have, twice.
	maxSyntax = 100_000
	syntax    = "\n,[{:-?"
	maxItems  = 1000 // of one list or mapping: yaml.v3 compares each key with each other
	// maxAliased is how many bytes aliases may add: 100,000 of one long string would be
	// gigabytes of JSON.
	maxAliased = 1 << 20
)

// ErrText says that a text is too large to be used.
var ErrText = errors.New("is too large")

// ParseText returns the document of a text that somebody else wrote, and its mapping. It takes all that
// client-go does, but for documents behind the first, which client-go leaves out.
func ParseText(text []byte) (document, root *yaml.Node, err error) {
	if err := checkSize(text); err != nil {
		return nil, nil, err
	}
	return yamledit.Parse(text, checkNodes)
}

// checkText bounds a text. Without it, the parsers take a hundred times its size, with aliases any,
// and a minute for many keys.
func checkText(text []byte) error {
	if err := checkSize(text); err != nil {
		return err
	}
	document := &yaml.Node{}
	if yaml.Unmarshal(text, document) != nil {
		return errNotYAML
	}
	return checkNodes(document)
}

func checkSize(text []byte) error {
	if len(text) > maxText {
		return fmt.Errorf("%w: it has %d bytes, want at most %d", ErrText, len(text), maxText)
	}
	nodes := 0
	for i := range len(syntax) {
		nodes += bytes.Count(text, []byte{syntax[i]})
	}
	if nodes > maxSyntax {
		return fmt.Errorf("%w: it has %d line ends and signs of YAML, want at most %d", ErrText, nodes, maxSyntax)
	}
	return nil
}

func checkNodes(document *yaml.Node) error {
	m := measure{anchors: map[*yaml.Node]int{}}
	m.add(document)
	switch {
	case m.items > maxItems:
		return fmt.Errorf("%w: a list or mapping in it has %d items, want at most %d", ErrText, m.items, maxItems)
	case m.aliased > maxAliased:
		return fmt.Errorf("%w: its YAML aliases stand for more than %d bytes", ErrText, maxAliased)
	}
	return nil
}

// measure measures nodes with their aliases written out.
type measure struct {
	anchors map[*yaml.Node]int // their bytes; less than 0 within themselves
	aliased int                // bytes
	items   int                // of the largest list or mapping
}

// add returns the bytes of n. They stay small enough to be added.
func (m *measure) add(n *yaml.Node) int {
	if n.Kind == yaml.AliasNode {
		size, ok := m.anchors[n.Alias]
		if !ok || size < 0 { // it holds itself
			size = maxAliased + 1
		}
		m.aliased = min(m.aliased+size, maxAliased+1)
		return size
	}
	items := len(n.Content)
	if n.Kind == yaml.MappingNode {
		items /= 2
	}
	m.items = max(m.items, items)
	if n.Anchor != "" {
		m.anchors[n] = -1
	}
	size := len(n.Value) + 1
	for _, child := range n.Content {
		size = min(size+m.add(child), maxText+maxAliased+1)
	}
	if n.Anchor != "" {
		m.anchors[n] = size
	}
	return size
}

// InCluster is a name in every certificate of an API server.
const InCluster = "kubernetes.default.svc"

// Current is what a kubeconfig's current context refers to.
type Current struct {
	Context     string
	ClusterName string
	Cluster     *clientcmdapi.Cluster  // never nil
	User        *clientcmdapi.AuthInfo // nil if the context names none
}

// Field is the path of a field of the cluster entry.
func (c *Current) Field(name string) string {
	return fmt.Sprintf("clusters[%q].%s", c.ClusterName, name)
}

// ServerURL is the API server's URL without what may be secret in it; empty if
// that can't be told.
func (c *Current) ServerURL() string {
	u, err := url.Parse(c.Cluster.Server)
	if err != nil || u.User != nil || u.Host == "" {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// FollowContext returns the entries of config's current context. An error is a
// *field.Error.
func FollowContext(config *clientcmdapi.Config) (*Current, error) {
	if config == nil {
		return nil, field.Wrap("config", field.ErrRequired)
	}
	if config.CurrentContext == "" {
		return nil, field.Wrap("current-context", field.ErrRequired)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return nil, field.Errorf("current-context", "there is no context %q", config.CurrentContext)
	}
	c := &Current{
		Context:     config.CurrentContext,
		ClusterName: current.Cluster,
		Cluster:     config.Clusters[current.Cluster],
		User:        config.AuthInfos[current.AuthInfo],
	}
	path := fmt.Sprintf("contexts[%q].", config.CurrentContext)
	switch {
	case c.Cluster == nil:
		return nil, field.Errorf(path+"cluster", "there is no cluster %q", current.Cluster)
	case c.User == nil && current.AuthInfo != "":
		return nil, field.Errorf(path+"user", "there is no user %q", current.AuthInfo)
	case c.Cluster.Server == "":
		return nil, field.Wrap(c.Field("server"), field.ErrRequired)
	}
	return c, nil
}
