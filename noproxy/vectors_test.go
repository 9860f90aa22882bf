package noproxy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/causewayproject/causeway/noproxy"
)

// vector is a verdict that Go's httpproxy gave.
type vector struct {
	NoProxy string `json:"no_proxy"`
	Host    string `json:"host"`
	Port    string `json:"port"` // "" is the one of the scheme
	Scheme  string `json:"scheme"`
	Want    *bool  `json:"want_go"`
	Tag     string `json:"tag"`
}

// minVectors guards against a file that was emptied or cut off.
const minVectors = 400

func loadVectors(tb testing.TB) []vector {
	tb.Helper()
	data, err := os.ReadFile("testdata/noproxy.json")
	if err != nil {
		tb.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(data, &vectors); err != nil {
		tb.Fatal(err)
	}
	if len(vectors) < minVectors {
		tb.Fatalf("testdata/noproxy.json: got %d vectors, want at least %d", len(vectors), minVectors)
	}
	for i := range vectors {
		v := &vectors[i]
		if v.Want == nil {
			tb.Fatalf("vector %d (%q, %q): no want_go", i, v.NoProxy, v.Host)
		}
		if v.Port != "" {
			continue
		}
		switch v.Scheme {
		case "http":
			v.Port = "80"
		case "https":
			v.Port = "443"
		default:
			tb.Fatalf("vector %d (%q, %q): unknown scheme %q", i, v.NoProxy, v.Host, v.Scheme)
		}
	}
	return vectors
}

func TestVectors(t *testing.T) {
	for i, v := range loadVectors(t) {
		t.Run(fmt.Sprintf("%d-%s", i, v.Tag), func(t *testing.T) {
			if got := noproxy.Parse(v.NoProxy).Bypass(v.Host, v.Port); got != *v.Want {
				t.Errorf("Parse(%q).Bypass(%q, %q): got %v, want %v", v.NoProxy, v.Host, v.Port, got, *v.Want)
			}
		})
	}
}
