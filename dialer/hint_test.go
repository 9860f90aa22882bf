package dialer_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/dialer"
)

// The hint about port 443 is for proxies that say nothing: one that sends Proxy-Status
// (RFC 9209) says itself why it refuses.
func TestPortHint(t *testing.T) {
	for header, want := range map[string]bool{"": true, "Proxy-Status: causeway; error=connection_refused\r\n": false} {
		addr := serve(t, listen(t), echoing(func(http.Header) string {
			return "HTTP/1.1 403 the policy does not allow it\r\n" + header + "Content-Length: 0\r\n\r\n"
		}))
		_, err := (&dialer.HTTPConnect{Addr: addr}).DialContext(testContext(t), "tcp", target)
		if got := strings.Contains(fmt.Sprint(err), "port 443 only"); got != want {
			t.Errorf("%q: got %v, want the hint %t", header, err, want)
		}
	}
}
