package noproxy

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// nameTable holds the names of a list. The value of a name is true if the name
// itself is covered too, and false if only the names below it are.
type nameTable struct {
	anyPort map[string]bool
	onePort map[namePort]bool
	lengths []int // the lengths of the names; sorted, each once
}

type namePort struct{ name, port string }

func (t *nameTable) addName(name, port string, apex bool) {
	if i, found := slices.BinarySearch(t.lengths, len(name)); !found {
		t.lengths = slices.Insert(t.lengths, i, len(name))
	}
	if port == "" {
		t.anyPort[name] = apex || t.anyPort[name]
		return
	}
	key := namePort{name, port}
	t.onePort[key] = apex || t.onePort[key]
}

// matchFold is matchName for a host in any case, with white space around it.
func (t *nameTable) matchFold(host, port string) bool {
	var buf [maxName]byte
	return matchName(t, appendLower(buf[:0], strings.TrimSpace(host)), port)
}

// matchName looks up the host itself and each part of it that follows a dot. It
// tries only the lengths of listed names, so a host of many dots does not cost
// more than the list has bytes.
//
// T is string or []byte because a map lookup with either does not allocate.
func matchName[T string | []byte](t *nameTable, host T, port string) bool {
	for _, length := range t.lengths {
		start := len(host) - length
		if start < 0 {
			return false
		}
		if start > 0 && host[start-1] != '.' {
			continue
		}
		found, apex := lookupName(t, host[start:], port)
		if found && (start > 0 || apex) {
			return true
		}
	}
	return false
}

func lookupName[T string | []byte](t *nameTable, name T, port string) (found, apex bool) {
	apex, found = t.anyPort[string(name)]
	if len(t.onePort) > 0 {
		a, ok := t.onePort[namePort{string(name), port}]
		found, apex = found || ok, apex || a
	}
	return found, apex
}

// maxName is the length of the longest name in DNS.
const maxName = 253

// appendLower appends the result of strings.ToLower(name) to buf, which is empty.
func appendLower(buf []byte, name string) []byte {
	if !isASCII(name) {
		return append(buf, strings.ToLower(name)...)
	}
	return lowerASCII(append(buf, name...))
}

// lowerASCII changes the upper-case ASCII letters in b, and returns b.
func lowerASCII(b []byte) []byte {
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return b
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// isPlain reports whether s is ASCII without upper-case letters, spaces and control
// characters, so that it can be compared without conversion.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < '!' || c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}
