package gateway_test

import (
	"strings"
	"testing"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// TestTunnelReasons: what a tunnel's dial says has its own answer: who is told that a name is
// unknown looks elsewhere than who is told to try again.
func TestTunnelReasons(t *testing.T) {
	for code, want := range map[tunnel.Code]string{
		tunnel.CodeDenied:         "403 destination_ip_prohibited",
		tunnel.CodeForbidden:      "403 destination_ip_prohibited",
		tunnel.CodeRefused:        "502 connection_refused",
		tunnel.CodeNotFound:       "502 dns_error",
		tunnel.CodeTimeout:        "504 connection_timeout",
		tunnel.CodeUnreachable:    "502 destination_ip_unroutable",
		tunnel.CodeReset:          "502 connection_terminated",
		tunnel.CodeLost:           "502 connection_terminated",
		tunnel.CodeNoAgent:        "503 destination_unavailable",
		tunnel.CodeTooManyStreams: "503 destination_unavailable",
		tunnel.CodeDraining:       "503 destination_unavailable",
		tunnel.CodeInternal:       "502 destination_unavailable",
	} {
		t.Run(code.Name(), func(t *testing.T) {
			err := &gateway.Error{Phase: gateway.PhaseDial, Err: &tunnel.Error{Op: "dial", Addr: "a:1", Code: code}}
			status, kind, _ := strings.Cut(want, " ")
			got := string(gateway.Answer(err))
			if !strings.HasPrefix(got, "HTTP/1.1 "+status+" ") || !strings.Contains(got, "error="+kind+";") {
				t.Errorf("got %q, want %s", got, want)
			}
		})
	}
}
