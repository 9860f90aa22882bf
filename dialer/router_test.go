package dialer_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/noproxy"
)

// way is a Dialer that only says that it was asked: it fails with itself.
type way string

func (w way) Error() string { return string(w) }

func (w way) DialContext(context.Context, string, string) (net.Conn, error) { return nil, w }

// wayOf dials address with d and returns which way was asked.
func wayOf(t *testing.T, d dialer.Dialer, address string) string {
	t.Helper()
	_, err := d.DialContext(t.Context(), "tcp", address)
	var w way
	if !errors.As(err, &w) {
		t.Fatalf("%s: got %v, want that one of the ways was asked", address, err)
	}
	return string(w)
}

// checkConfigError fails the test if err is not an *Error of the config phase
// that contains want.
func checkConfigError(t *testing.T, err error, want string) {
	t.Helper()
	var e *dialer.Error
	if !errors.As(err, &e) || e.Phase != dialer.PhaseConfig {
		t.Fatalf("got %v, want an *Error of the config phase", err)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("got %q, want it to contain %q", err, want)
	}
}

func TestRouter(t *testing.T) {
	r := &dialer.Router{NoProxy: noproxy.Parse("10.1.2.3,git.internal,.corp:8080,2001:db8::1"), Direct: way("direct"), Default: way("default")}
	for address, want := range map[string]string{
		"10.1.2.3:443": "direct", "[::ffff:10.1.2.3]:443": "direct", "10.1.2.4:443": "default",
		"git.internal:22": "direct", "GIT.Internal:22": "direct", "a.corp:08080": "direct", "a.corp:443": "default",
		"[2001:db8::1%eth0]:443": "direct", "192.0.2.1:443": "default",
		"127.0.0.1:6443": "direct", "localhost:80": "direct", // implied
	} {
		if got := wayOf(t, r, address); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
	r.NoProxy = nil
	if got := wayOf(t, r, "localhost:80"); got != "default" {
		t.Errorf("without rules: got %s, want default", got)
	}
}

// What is nil dials directly, and the address and conn are left as they are.
func TestRouterZeroValue(t *testing.T) {
	local := serve(t, listen(t), echo)
	for name, r := range map[string]*dialer.Router{
		"Default": {},
		"Direct":  {NoProxy: noproxy.Parse(""), Default: way("default")},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := r.DialContext(testContext(t), "tcp", local)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			exchange(t, conn, "")
		})
	}
	var got []string
	r := &dialer.Router{Default: dialer.Func(func(_ context.Context, network, address string) (net.Conn, error) {
		got = append(got, network, address)
		return nil, way("default")
	})}
	r.DialContext(t.Context(), "tcp6", "[FE80::1%eth0]:0443")
	if diff := cmp.Diff([]string{"tcp6", "[FE80::1%eth0]:0443"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRouterErrors(t *testing.T) {
	for _, tt := range []struct {
		name, address, want string
	}{
		{"no port", "example.com", "not host:port"},
		{"empty port", "example.com:", "1 to 65535"},
		{"port by name", "example.com:https", "1 to 65535"},
		{"port zero", "example.com:0", "1 to 65535"},
		{"port too large", "example.com:65536", "1 to 65535"},
		{"no host", ":443", "no host"},
		{"empty", "", "not host:port"},
		{"IPv6 without brackets", "2001:db8::1:443", "not host:port"},
		{"URL", "https://example.com:443", "not host:port"},
		{"space", "a b:443", "space"},
		{"brackets in a name", "a]b:443", "not host:port"},
		{"zone of a name", "a%eth0:443", "holds '%'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &dialer.Router{
				NoProxy: noproxy.Parse("*"),
				Direct:  way("direct"),
				Default: way("default"),
			}
			_, err := r.DialContext(t.Context(), "tcp", tt.address)
			checkConfigError(t, err, tt.want)
		})
	}
}
