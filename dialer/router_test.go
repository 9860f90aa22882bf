package dialer_test

import (
	"context"
	"errors"
	"net"
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

func route(t *testing.T, w way, patterns ...string) dialer.Route {
	t.Helper()
	match, err := dialer.ParsePatterns(patterns...)
	if err != nil {
		t.Fatal(err)
	}
	return dialer.Route{Match: match, Dialer: w}
}

func TestRouterMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		yes, no []string
	}{
		{"example.com", []string{"example.com:1", "a.example.com:1", "A.B.EXAMPLE.com:443"}, []string{"example.com.:1", "xexample.com:1", "example.org:1", "192.0.2.1:1"}},
		{"Example.COM", []string{"example.com:1", "a.example.com:1"}, nil},
		{"example.com.", []string{"example.com.:1"}, []string{"example.com:1"}},
		{".example.com", []string{"a.example.com:1", "a.b.example.com:1"}, []string{"example.com:1"}},
		{"*.example.com", []string{"a.example.com:1"}, []string{"example.com:1"}},
		{"example.com:6443", []string{"example.com:6443", "a.example.com:6443", "example.com:06443"}, []string{"example.com:443"}},
		{"*.example.com:6443", []string{"a.example.com:6443"}, []string{"example.com:6443", "a.example.com:443"}},
		{"bücher.example", []string{"bücher.example:1", "xn--bcher-kva.example:1", "BÜCHER.example:1"}, []string{"bucher.example:1"}},
		{"xn--bcher-kva.example", []string{"bücher.example:1"}, nil},
		{"10.0.0.1", []string{"10.0.0.1:1", "[::ffff:10.0.0.1]:2"}, []string{"10.0.0.10:1", "a.10.0.0.1.example:1", "[::10.0.0.1]:1"}},
		{"::ffff:10.0.0.1", []string{"10.0.0.1:1"}, []string{"10.0.0.2:1"}},
		{"10.0.0.1:443", []string{"10.0.0.1:443", "[::ffff:10.0.0.1]:443"}, []string{"10.0.0.1:6443"}},
		{"2001:db8::1", []string{"[2001:db8::1]:1", "[2001:DB8:0::1]:1", "[2001:db8::1%eth0]:1"}, []string{"[2001:db8::2]:1"}},
		{"[2001:db8::1]:443", []string{"[2001:db8::1]:443"}, []string{"[2001:db8::1]:6443"}},
		{"10.0.0.0/8", []string{"10.0.0.0:1", "10.255.255.255:1", "[::ffff:10.1.2.3]:1"}, []string{"11.0.0.0:1", "9.255.255.255:1", "[2001:db8::1]:1", "10.example:1"}},
		{"10.1.2.3/8", []string{"10.0.0.0:1"}, []string{"11.0.0.0:1"}},
		{"::ffff:10.0.0.0/104", []string{"10.1.2.3:1"}, []string{"11.0.0.0:1"}},
		{"2001:db8::/32", []string{"[2001:db8:ffff::1]:1"}, []string{"[2001:db9::]:1", "10.0.0.1:1"}},
		{"0.0.0.0/0", []string{"10.0.0.1:1", "127.0.0.1:1", "[::ffff:127.0.0.1]:1"}, []string{"[2001:db8::1]:1", "[::1]:1", "localhost:1", "a:1"}},
		{"::/0", []string{"[2001:db8::1]:1", "[::1]:1", "[::1%lo]:1"}, []string{"10.0.0.1:1", "127.0.0.1:1", "localhost:1"}},
		{"*", []string{"a:1", "10.0.0.1:1", "[2001:db8::1]:1", "localhost:1", "LOCALHOST:1", "127.0.0.1:1", "[::1]:1", "a.:1"}, nil},
		{"10.0.0.0/8:8443", []string{"10.1.2.3:8443"}, []string{"10.1.2.3:443", "11.0.0.1:8443"}},
		{"[2001:db8::/32]:8443", []string{"[2001:db8::1]:8443"}, []string{"[2001:db8::1]:443"}},
		{"*:8443", []string{"a:8443", "10.0.0.1:8443", "localhost:8443"}, []string{"a:443", "127.0.0.1:443"}},
		// Nothing is implied.
		{"other.example", nil, []string{"localhost:1", "LOCALHOST:1", "localhost.:1", "a.localhost:1", "ｌocalhost:1", "127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "[::1%lo]:1", "[::ffff:127.0.0.1]:1"}},
		{"localhost", []string{"localhost:1", "Localhost:1", "ｌocalhost:1", "a.localhost:1"}, []string{"localhost.:1", "127.0.0.1:1", "[::1]:1"}},
		{"localhost:8080", []string{"localhost:8080", "LOCALHOST:8080"}, []string{"localhost:80"}},
		{"*.localhost", []string{"a.localhost:1"}, []string{"localhost:1"}},
		{"127.0.0.1", []string{"127.0.0.1:1", "[::ffff:127.0.0.1]:1"}, []string{"127.0.0.2:1", "localhost:1", "[::1]:1"}},
		{"::ffff:127.0.0.1", []string{"127.0.0.1:1"}, []string{"127.0.0.2:1"}},
		{"127.0.0.1:6443", []string{"127.0.0.1:6443"}, []string{"127.0.0.1:443"}},
		{"127.0.0.0/8", []string{"127.0.0.1:1", "127.255.0.1:1"}, []string{"126.0.0.1:1", "localhost:1", "[::1]:1"}},
		{"::ffff:127.0.0.0/104", []string{"127.0.0.1:1"}, []string{"[::1]:1"}},
		{"::1", []string{"[::1]:1", "[::1%lo]:1"}, []string{"127.0.0.1:1", "[::2]:1"}},
		{"[::1]:6443", []string{"[::1]:6443"}, []string{"[::1]:443", "localhost:6443"}},
	} {
		t.Run(tt.pattern, func(t *testing.T) {
			r := &dialer.Router{Routes: []dialer.Route{route(t, "routed", tt.pattern)}, Default: way("default")}
			for _, address := range tt.yes {
				if got := wayOf(t, r, address); got != "routed" {
					t.Errorf("%s: got %s, want routed", address, got)
				}
			}
			for _, address := range tt.no {
				if got := wayOf(t, r, address); got != "default" {
					t.Errorf("%s: got %s, want default", address, got)
				}
			}
		})
	}
}

func TestRouterPrecedence(t *testing.T) {
	routes := []dialer.Route{
		route(t, "jump", "db.internal:5432", "10.1.0.0/16"),
		route(t, "tunnel", ".internal", "10.0.0.0/8", "127.0.0.1:6443"),
		route(t, "never", "10.1.0.0/16"),
	}
	rules := noproxy.Parse("10.1.2.3,git.internal,.corp:8080")
	for _, tt := range []struct {
		address   string
		no, rules string // without NoProxy, and with it
	}{
		{"db.internal:5432", "jump", "jump"},
		{"db.internal:443", "tunnel", "tunnel"},
		{"10.1.9.9:443", "jump", "jump"},
		{"10.1.2.3:443", "jump", "direct"},
		{"10.2.0.1:443", "tunnel", "tunnel"},
		{"git.internal:22", "tunnel", "direct"},
		{"a.corp:8080", "default", "direct"},
		{"a.corp:08080", "default", "direct"},
		{"a.corp:443", "default", "default"},
		{"192.0.2.1:443", "default", "default"},
		// Parse implies them; without rules nothing does.
		{"127.0.0.1:6443", "tunnel", "direct"},
		{"localhost:80", "default", "direct"},
	} {
		t.Run(tt.address, func(t *testing.T) {
			r := &dialer.Router{Direct: way("direct"), Routes: routes, Default: way("default")}
			got := [2]string{wayOf(t, r, tt.address)}
			r.NoProxy = rules
			got[1] = wayOf(t, r, tt.address)
			if diff := cmp.Diff([2]string{tt.no, tt.rules}, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
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
	all := route(t, "routed", "*")
	for _, tt := range []struct {
		name, address string
		routes        []dialer.Route
		want          string
	}{
		{"no port", "example.com", nil, "not host:port"},
		{"empty port", "example.com:", nil, "1 to 65535"},
		{"port by name", "example.com:https", nil, "1 to 65535"},
		{"port zero", "example.com:0", nil, "1 to 65535"},
		{"port too large", "example.com:65536", nil, "1 to 65535"},
		{"no host", ":443", nil, "no host"},
		{"empty", "", nil, "not host:port"},
		{"IPv6 without brackets", "2001:db8::1:443", nil, "not host:port"},
		{"URL", "https://example.com:443", nil, "not host:port"},
		{"space", "a b:443", nil, "space"},
		{"brackets in a name", "a]b:443", nil, "not host:port"},
		{"zone of a name", "a%eth0:443", nil, "holds '%'"},
		{"no Match", "example.com:443", []dialer.Route{all, {Dialer: way("x")}}, "route 2 of 2"},
		{"no Dialer", "example.com:443", []dialer.Route{{Match: all.Match}}, "route 1 of 1"},
		{"nil pointer", "example.com:443", []dialer.Route{{Match: all.Match, Dialer: (*dialer.SOCKS5)(nil)}}, "route 1 of 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &dialer.Router{
				NoProxy: noproxy.Parse("*"),
				Direct:  way("direct"),
				Routes:  tt.routes,
				Default: way("default"),
			}
			_, err := r.DialContext(t.Context(), "tcp", tt.address)
			checkConfigError(t, err, tt.want)
		})
	}
	// The zero Patterns is no way to everything.
	r := &dialer.Router{Routes: []dialer.Route{{Match: &dialer.Patterns{}, Dialer: way("routed")}}, Default: way("default")}
	if got := wayOf(t, r, "localhost:1"); got != "default" {
		t.Errorf("zero Patterns: got %s", got)
	}
}
