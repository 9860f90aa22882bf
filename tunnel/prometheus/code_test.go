package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

func TestCodeOf(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"none", nil, "ok"},
		{"a code", &tunnel.Error{Code: tunnel.CodeTooManyStreams}, "too_many_streams"},
		{"a code within", fmt.Errorf("around: %w", &tunnel.Error{Code: tunnel.CodePin}), "pin"},
		{"an unknown code", &tunnel.Error{Code: 9999}, "other"},
		{"a code around a context's end", &tunnel.Error{Code: tunnel.CodeLost, Err: context.Canceled}, "lost"},
		{"canceled", context.Canceled, "canceled"},
		{"deadline", context.DeadlineExceeded, "timeout"},
		{"deadline of a connection", os.ErrDeadlineExceeded, "timeout"},
		{"closed", net.ErrClosed, "closed"},
		{"anything else", errors.New("10.0.0.1:22"), "other"},
	} {
		if got := metrics.CodeOf(test.err); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// Every code of the tunnel has a label of its own.
func TestCodesAreComplete(t *testing.T) {
	declared := declaredCodes(t)
	if len(declared) < 20 {
		t.Fatalf("found %d codes in errors.go, want them all", len(declared))
	}
	plain := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	taken := map[string]tunnel.Code{"ok": 0, "other": 0}
	for name, code := range declared {
		label := code.Name()
		if other, ok := taken[label]; ok || !plain.MatchString(label) {
			t.Errorf("%s (%d) has label %q, as %d", name, code, label, other)
		}
		taken[label] = code
	}
}

func declaredCodes(t *testing.T) map[string]tunnel.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../errors.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]tunnel.Code{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Code") {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			n, err := strconv.ParseUint(lit.Value, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			found[spec.Names[0].Name] = tunnel.Code(n)
		}
		return true
	})
	return found
}
