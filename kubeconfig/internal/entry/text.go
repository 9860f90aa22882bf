package entry

import (
	"bytes"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// The bounds of a text that somebody else wrote, before it is parsed.
const (
	maxText = 1 << 20 // bytes: a Secret holds no more
	// maxSyntax is how many characters may make nodes of YAML, of 200 bytes each in memory:
	// as many as 1,000 clusters with their users and contexts have, twice.
	maxSyntax = 100_000
	syntax    = "\n,[{:-?"
	// maxAliased is how many bytes aliases may add: 100,000 of one long string would be
	// gigabytes of JSON.
	maxAliased = 4 << 20
)

// ErrText says that a text is too large to be parsed.
var ErrText = errors.New("is too large")

// CheckText bounds a text that somebody else wrote. Without it, the parsers take a hundred
// times its size, and with aliases any.
func CheckText(text []byte) error {
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
	return checkAliases(text)
}

// checkAliases bounds what a text becomes with its aliases written out.
func checkAliases(text []byte) error {
	if !bytes.Contains(text, []byte("&")) || !bytes.Contains(text, []byte("*")) {
		return nil
	}
	var document yaml.Node
	if yaml.Unmarshal(text, &document) != nil {
		return errNotYAML
	}
	a := aliases{sizes: map[*yaml.Node]int{}}
	a.measure(&document)
	if a.added > maxAliased {
		return fmt.Errorf("%w: its YAML aliases stand for more than %d bytes", ErrText, maxAliased)
	}
	return nil
}

// aliases measures nodes with their aliases written out.
type aliases struct {
	sizes map[*yaml.Node]int // of anchors; less than 0 within itself
	added int
}

// measure returns the bytes of n. They stay small enough to be added.
func (a *aliases) measure(n *yaml.Node) int {
	if n.Kind == yaml.AliasNode {
		size, ok := a.sizes[n.Alias]
		if !ok || size < 0 { // it holds itself
			size = maxAliased + 1
		}
		a.added = min(a.added+size, maxAliased+1)
		return size
	}
	if n.Anchor != "" {
		a.sizes[n] = -1
	}
	size := len(n.Value) + 1
	for _, child := range n.Content {
		size = min(size+a.measure(child), maxText+maxAliased+1)
	}
	if n.Anchor != "" {
		a.sizes[n] = size
	}
	return size
}
