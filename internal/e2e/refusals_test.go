package e2e

import (
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// deniedPort is one that the proxies let nobody connect to, and that nothing
// listens on.
const deniedPort = "2379"

// What a proxy's rules refuse is a *dialer.Error with the proxy's own code, and
// with the advice that its administrator needs.
func TestDeniedPort(t *testing.T) {
	b := sharedBed(t)
	squid := failure{
		Op: "http connect", Phase: dialer.PhaseConnect, Status: 403, SquidError: "ERR_ACCESS_DENIED 0",
		Text: "403 Forbidden (X-Squid-Error: ERR_ACCESS_DENIED 0) (many proxies allow CONNECT to port 443 only by default: allow port 2379 there)",
	}
	tinyproxy := squid
	tinyproxy.SquidError = ""
	tinyproxy.Text = "403 Access violation (many proxies allow CONNECT to port 443 only by default: allow port 2379 there)"
	want := map[string]failure{
		"squid-http":   squid,
		"squid-https":  squid,
		"haproxy-http": squid, // squid is behind it
		"haproxy-h2":   squid,
		"tinyproxy":    tinyproxy,
		"dante":        {Op: "socks5", Phase: dialer.PhaseConnect, Status: 2, Text: "not allowed"},
		// It has no rules: this is the target's refusal.
		"microsocks": {Op: "socks5", Phase: dialer.PhaseConnect, Status: 5, Refused: true, Text: "refused"},
		// ssh -D has no code for it: it closes the connection.
		"ssh": {Op: "socks5", Phase: dialer.PhaseConnect, Text: "the proxy closed the connection"},
	}
	for _, r := range routes(b) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			input := throughInput{Hops: []hop{r.hop()}, Address: net.JoinHostPort(b.Kube.Host(), deniedPort), Count: 1, Parallel: 1}
			checkFailure(t, b, input, want[r.name])
		})
	}
}

// A wrong password is an error of its own with every proxy that asks for one.
func TestWrongPassword(t *testing.T) {
	b := sharedBed(t)
	for _, r := range routes(b) {
		if r.proxy.User == nil {
			continue
		}
		want := failure{Op: "http connect", Phase: dialer.PhaseAuth, Status: 407, Text: "407 Proxy Authentication Required"}
		switch {
		case r.proxy.Scheme == "socks5":
			want = failure{Op: "socks5", Phase: dialer.PhaseAuth, Login: true, Text: "refused the user name and password"}
		case r.name == "tinyproxy": // 407 is for no credentials at all
			want.Phase, want.Status, want.Text = dialer.PhaseAuth, 401, "401 Unauthorized"
		default:
			want.SquidError = "ERR_CACHE_ACCESS_DENIED 0"
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.proxy.User = url.UserPassword(bed.ProxyUser, "wrong")
			input := throughInput{Hops: []hop{r.hop()}, Address: b.Kube.Address(), Count: 1, Parallel: 1}
			checkFailure(t, b, input, want)
		})
	}
}

// checkFailure dials from the client namespace. want.Text is what the error's
// text contains.
func checkFailure(t *testing.T, b *bed.Bed, input throughInput, want failure) {
	t.Helper()
	var got throughAnswer
	if err := b.Network.Client.Play(t.Context(), "through", input, &got); err != nil {
		t.Fatal(err)
	}
	if got.Failure == nil {
		t.Fatalf("got %q, want a *dialer.Error", got.Lost)
	}
	t.Log(got.Failure.Text)
	if want.Text == "" || !strings.Contains(got.Failure.Text, want.Text) {
		t.Errorf("got the text %q, want %q in it", got.Failure.Text, want.Text)
	}
	got.Failure.Text = want.Text
	if *got.Failure != want {
		t.Errorf("got  %+v\nwant %+v", *got.Failure, want)
	}
}
