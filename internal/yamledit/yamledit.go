// Package yamledit edits a YAML or JSON text by its nodes. The other nodes
// keep their text: unknown keys, the digits of numbers, the order, and comments.
package yamledit

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	kubeyaml "sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/quote"
)

// Parse returns the document of a text, and the mapping that it has to hold. What aliases, merge keys
// and a key that is there twice mean is written out as the Kubernetes libraries read it; comments are
// then lost. Empty documents may follow. The errors complete a sentence about the text. They leave out
// what the YAML library says, since it quotes values, which may be secret. checks are asked of the
// document before anything is written out.
func Parse(text []byte, checks ...func(document *yaml.Node) error) (document, root *yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	document, next := &yaml.Node{}, &yaml.Node{}
	switch err := decoder.Decode(document); {
	case err == io.EOF:
		return nil, nil, errors.New("is empty")
	case err != nil:
		return nil, nil, errors.New("is not YAML")
	}
	for _, check := range checks {
		if err := check(document); err != nil {
			return nil, nil, err
		}
	}
	for {
		switch err := decoder.Decode(next); {
		case err == nil && next.Content[0].Tag == "!!null":
			continue
		case err != io.EOF:
			return nil, nil, errors.New("holds several YAML documents; want one")
		}
		break
	}
	root = document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, nil, errors.New("is no YAML mapping")
	}
	if !isPlain(root) {
		plain, err := kubeyaml.YAMLToJSON(text)
		if err != nil || yaml.Unmarshal(plain, document) != nil {
			return nil, nil, errors.New("is YAML that Kubernetes does not read")
		}
		root = document.Content[0]
	}
	if root.Style&yaml.FlowStyle != 0 { // JSON
		blockStyle(root)
	}
	return document, root, nil
}

// isPlain reports whether no part of n means one thing in one place and would be changed in another,
// and nothing is read differently by other programs.
func isPlain(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return false
	}
	seen := map[string]bool{}
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" || seen[key.Value] {
			return false
		}
		seen[key.Value] = true
	}
	return !slices.ContainsFunc(n.Content, func(child *yaml.Node) bool { return !isPlain(child) })
}

func blockStyle(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	for _, child := range n.Content {
		blockStyle(child)
	}
}

// Encode returns a node's text, indented as the Kubernetes libraries do it.
func Encode(n *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(n); err != nil {
		return nil, errors.New("can't be written as YAML")
	}
	if err := encoder.Close(); err != nil {
		return nil, errors.New("can't be written as YAML")
	}
	return b.Bytes(), nil
}

// Child returns the value of key in a mapping, nil if it is absent or null.
func Child(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key && mapping.Content[i+1].Tag != "!!null" {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// SetChild replaces the value of key, or adds it where a sorted mapping has it.
func SetChild(mapping *yaml.Node, key string, value *yaml.Node) {
	at := len(mapping.Content)
	for i := 0; i < len(mapping.Content); i += 2 {
		switch name := mapping.Content[i].Value; {
		case name == key:
			mapping.Content[i+1] = value
			return
		case name > key && at == len(mapping.Content):
			at = i
		}
	}
	mapping.Content = slices.Insert(mapping.Content, at, newScalar(key), value)
}

// DropChild removes a key and its value, if there is such a key.
func DropChild(mapping *yaml.Node, key string) {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
			return
		}
	}
}

// Named returns the item with that name of a list such as a kubeconfig's, and its
// index; nil and -1 without one.
func Named(list *yaml.Node, name string) (*yaml.Node, int) {
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil, -1
	}
	for i, item := range list.Content {
		if n := Child(item, "name"); n != nil && n.Kind == yaml.ScalarNode && n.Value == name {
			return item, i
		}
	}
	return nil, -1
}

// SetNamed sets the value of key in the item of that name, and adds the item, and
// the list, if they are missing.
func SetNamed(mapping *yaml.Node, list, name, key string, value *yaml.Node) {
	items := Child(mapping, list)
	if items == nil || items.Kind != yaml.SequenceNode {
		items = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		SetChild(mapping, list, items)
	}
	item, _ := Named(items, name)
	if item == nil {
		item = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		SetChild(item, "name", newScalar(name))
		items.Content = append(items.Content, item)
	}
	SetChild(item, key, value)
}

// DropNamed removes the item of that name, and the list with its last item.
func DropNamed(mapping *yaml.Node, list, name string) {
	items := Child(mapping, list)
	if _, i := Named(items, name); i >= 0 {
		items.Content = slices.Delete(items.Content, i, i+1)
		if len(items.Content) == 0 {
			DropChild(mapping, list)
		}
	}
}

// Quote returns text as a scalar of one line in double quotes. The error completes a
// sentence about text.
func Quote(text string) (string, error) {
	if err := quote.Check(text); err != nil {
		return "", err
	}
	b, err := Encode(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: text})
	return strings.TrimSuffix(string(b), "\n"), err
}

// newScalar quotes what would be read as something else than a string.
func newScalar(text string) *yaml.Node {
	n := &yaml.Node{}
	if err := n.Encode(text); err != nil || strings.Contains(text, "\n") {
		n.SetString(text)
	}
	return n
}

// Same reports whether two nodes that the Kubernetes libraries wrote are equal.
func Same(a, b *yaml.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Tag == b.Tag && a.Value == b.Value && slices.EqualFunc(a.Content, b.Content, Same)
}
