package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// Strangers do not write the log: of many refusals a few are in it, and how many
// there were.
func TestRefusalsAreSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		refused := serverHooks(slog.New(slog.NewTextHandler(&text, nil))).Refused
		strange := &tunnel.Error{Op: "connect", Code: tunnel.CodeBadRequest}
		addr := func(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
		lines := func() int { return strings.Count(text.String(), "\n") }
		for i := range 10000 {
			refused(addr("192.0.2.1", i), strange)
			refused(addr(fmt.Sprintf("2001:db8::%x", i), i), strange)
		}
		refused(addr("192.0.2.1", 1), &tunnel.Error{Op: "connect", Code: tunnel.CodeRevoked})
		if got := lines(); got != 3 {
			t.Errorf("got %d lines of two sources, want 3:\n%s", got, text.String())
		}
		for i := range 10000 {
			refused(addr(fmt.Sprintf("2001:db8:%x::1", i), i), strange)
		}
		if got := lines(); got > maxRefusals {
			t.Errorf("got %d lines of many sources, want %d at most", got, maxRefusals)
		}
		time.Sleep(refusalEvery)
		text.Reset()
		refused(addr("192.0.2.1", 1), strange)
		if got := text.String(); lines() != 2 || !strings.Contains(got, "count=29901") {
			t.Errorf("got %q a minute later, want the count of the others and the refusal", got)
		}
	})
}
