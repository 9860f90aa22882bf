package tunnel_test

import (
	"testing"

	"github.com/causewayproject/causeway/tunnel"
)

// Package gateway asks for this to tell 503 from 502.
func TestErrorUnavailable(t *testing.T) {
	for code, want := range map[tunnel.Code]bool{
		tunnel.CodeNoAgent:        true,
		tunnel.CodeDraining:       true,
		tunnel.CodeTooManyStreams: true,
		tunnel.CodeDenied:         false,
		tunnel.CodeRefused:        false,
		tunnel.CodeLost:           false,
	} {
		if got := (&tunnel.Error{Op: "dial", Code: code}).Unavailable(); got != want {
			t.Errorf("%v: got %t, want %t", code, got, want)
		}
	}
}
