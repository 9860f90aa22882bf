package kubeconfig

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is a YAML or JSON text to edit. What is not edited keeps its text:
// unknown keys, the digits of numbers, the order, and comments.
type document struct {
	file *yaml.Node
	root *yaml.Node // its mapping
}

// parseDocument leaves out what the YAML library says: it quotes values.
func parseDocument(text []byte) (*document, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	file, next := &yaml.Node{}, &yaml.Node{}
	switch err := decoder.Decode(file); {
	case err == io.EOF:
		return nil, errors.New("is empty")
	case err != nil:
		return nil, errors.New("is not YAML")
	}
	if err := decoder.Decode(next); err != io.EOF {
		return nil, errors.New("holds several YAML documents; want one")
	}
	root := file.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("is no kubeconfig: want a YAML mapping")
	}
	if err := checkNode(root); err != nil {
		return nil, err
	}
	if root.Style&yaml.FlowStyle != 0 { // JSON
		blockStyle(root)
	}
	return &document{file: file, root: root}, nil
}

// checkNode refuses what means one thing in one place and would be changed in
// another, and what programs read differently.
func checkNode(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return errors.New("holds a YAML anchor or alias; write the value out")
	}
	if n.Kind == yaml.MappingNode {
		seen := make(map[string]bool, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			switch {
			case key.Kind == yaml.ScalarNode && key.Tag == "!!merge":
				return errors.New("holds a YAML merge key (<<); write the values out")
			case key.Kind == yaml.ScalarNode && seen[key.Value]:
				return errors.New("holds a key twice in one mapping")
			case key.Kind == yaml.ScalarNode:
				seen[key.Value] = true
			case key.Kind != yaml.AliasNode:
				return errors.New("holds a key that is no string")
			}
		}
	}
	for _, child := range n.Content {
		if err := checkNode(child); err != nil {
			return err
		}
	}
	return nil
}

func blockStyle(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	for _, child := range n.Content {
		blockStyle(child)
	}
}

// text writes it as the Kubernetes libraries indent it.
func (d *document) text() ([]byte, error) { return encodeNode(d.file) }

func encodeNode(n *yaml.Node) ([]byte, error) {
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

// child returns the value of key in a mapping, nil if it is absent or null.
func child(mapping *yaml.Node, key string) *yaml.Node {
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

// setChild replaces the value of key, or adds it where a sorted mapping has it.
func setChild(mapping *yaml.Node, key string, value *yaml.Node) {
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
	mapping.Content = slices.Insert(mapping.Content, at, scalar(key), value)
}

func dropChild(mapping *yaml.Node, key string) {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
			return
		}
	}
}

// named returns the item of a list whose name it is, as in a kubeconfig's
// lists, and where it is.
func named(list *yaml.Node, name string) (*yaml.Node, int) {
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil, -1
	}
	for i, item := range list.Content {
		if n := child(item, "name"); n != nil && n.Kind == yaml.ScalarNode && n.Value == name {
			return item, i
		}
	}
	return nil, -1
}

// setNamed sets what the item of that name holds under key, or adds an item.
func setNamed(mapping *yaml.Node, list, name, key string, value *yaml.Node) {
	items := child(mapping, list)
	if items == nil {
		items = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		setChild(mapping, list, items)
	}
	item, _ := named(items, name)
	if item == nil {
		item = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		setChild(item, "name", scalar(name))
		items.Content = append(items.Content, item)
	}
	setChild(item, key, value)
}

func dropNamed(mapping *yaml.Node, list, name string) {
	items := child(mapping, list)
	if _, i := named(items, name); i >= 0 {
		items.Content = slices.Delete(items.Content, i, i+1)
		if len(items.Content) == 0 {
			dropChild(mapping, list)
		}
	}
}

// scalar quotes what would be read as something else than a string.
func scalar(text string) *yaml.Node {
	n := &yaml.Node{}
	if err := n.Encode(text); err != nil || strings.Contains(text, "\n") {
		n.SetString(text)
	}
	return n
}

// sameNode compares what the Kubernetes libraries wrote.
func sameNode(a, b *yaml.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Tag == b.Tag && a.Value == b.Value && slices.EqualFunc(a.Content, b.Content, sameNode)
}
