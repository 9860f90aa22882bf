package logs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// lines are the keys of each message.
type lines map[string]map[string]bool

func (l lines) add(message string, keys ...string) {
	if l[message] == nil {
		l[message] = map[string]bool{}
	}
	for _, key := range keys {
		l[message][key] = true
	}
}

// Each line of the programs' logs is in docs/logs.md with its keys, and no other.
func TestDocsListEveryLine(t *testing.T) {
	documented, keys := readDocs(t)
	written, loose := readCalls(t)
	for message := range written {
		if documented[message] == nil {
			t.Errorf("docs/logs.md has no line %q", message)
		}
		for key := range written[message] {
			if documented[message] != nil && !documented[message][key] {
				t.Errorf("docs/logs.md: the line %q has no key %q", message, key)
			}
		}
	}
	for message, of := range documented {
		if written[message] == nil {
			t.Errorf("docs/logs.md: no program writes %q", message)
		}
		for key := range of {
			if !keys[key] {
				t.Errorf("docs/logs.md: the key %q has no example", key)
			}
			if !written[message][key] && !loose[key] {
				t.Errorf("docs/logs.md: no program writes the key %q of %q", key, message)
			}
		}
	}
	for key := range loose {
		if !keys[key] {
			t.Errorf("docs/logs.md has no key %q", key)
		}
	}
	if len(written) < 30 || len(loose) < 10 {
		t.Errorf("got %d messages and %d keys in lists: is the pattern still right?", len(written), len(loose))
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// readDocs returns the lines in the tables whose first column is a line, and the keys of
// the table of keys.
func readDocs(t *testing.T) (lines, map[string]bool) {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	documented, keys, table := lines{}, map[string]bool{}, ""
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			table = ""
			continue
		}
		first := quoted.FindStringSubmatch(cells[1])
		switch {
		case table == "":
			table = strings.TrimSpace(cells[1])
		case first == nil:
		case table == "key":
			keys[first[1]] = true
		case table == "line":
			documented.add(first[1])
			for _, key := range quoted.FindAllStringSubmatch(cells[len(cells)-2], -1) {
				documented.add(first[1], key[1])
			}
		}
	}
	return documented, keys
}

// readCalls returns the lines that the programs write. Loose are the keys in lists that
// are passed on, whose message is not known.
func readCalls(t *testing.T) (written lines, loose map[string]bool) {
	t.Helper()
	written, loose = lines{}, map[string]bool{}
	files, err := filepath.Glob("../*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		attributes := loose
		if !slices.ContainsFunc(parsed.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"log/slog"` }) {
			attributes = map[string]bool{} // its lists are of something else
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				readCall(n, written, attributes)
			case *ast.CompositeLit:
				if array, ok := n.Type.(*ast.ArrayType); ok {
					if of, ok := array.Elt.(*ast.Ident); ok && of.Name == "any" {
						maps.Insert(attributes, maps.All(keysOf(n.Elts)))
					}
				}
			}
			return true
		})
	}
	return written, loose
}

// messageAt is which argument of a call is the message; its keys are after skip more.
var messageAt = map[string]struct{ message, skip int }{
	"Debug": {0, 0}, "Info": {0, 0}, "Warn": {0, 0}, "Error": {0, 0},
	"Log": {2, 0}, "LogAttrs": {2, 0}, "Write": {1, 2},
}

func readCall(call *ast.CallExpr, written lines, loose map[string]bool) {
	name := ""
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		name = f.Sel.Name
		if x, ok := f.X.(*ast.Ident); ok && x.Name == "slog" && len(call.Args) == 2 { // an attribute
			maps.Insert(loose, maps.All(keysOf(call.Args)))
			return
		}
	case *ast.Ident:
		if f.Name == "append" && len(call.Args) > 1 {
			maps.Insert(loose, maps.All(keysOf(call.Args[1:])))
		}
	}
	if name == "Check" && len(call.Args) == 3 { // of follow.File
		what, _ := textOf(call.Args[1])
		written.add(what, "file")
		written.add(what+": those before stay", "error")
	}
	at, ok := messageAt[name]
	if !ok || len(call.Args) <= at.message {
		return
	}
	if message, ok := textOf(call.Args[at.message]); ok {
		written.add(message)
		if after := at.message + 1 + at.skip; after <= len(call.Args) {
			maps.Insert(written[message], maps.All(keysOf(call.Args[after:])))
		}
	}
}

// keysOf returns the texts at even places.
func keysOf(args []ast.Expr) map[string]bool {
	keys := map[string]bool{}
	for i := 0; i < len(args); i += 2 {
		if key, ok := textOf(args[i]); ok {
			keys[key] = true
		}
	}
	return keys
}

func textOf(e ast.Expr) (string, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}
