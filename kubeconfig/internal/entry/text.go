package entry

import (
	"bytes"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/causewayproject/causeway/internal/yamledit"
)

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
