package dialer_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
)

// described is what of a Dialer can be compared.
type described struct {
	Kind, Addr       string
	User, Password   string
	TLS, LocalLookup bool
}

func describe(t *testing.T, d dialer.Dialer) (got described) {
	t.Helper()
	var credentials dialer.Credentials
	switch d := d.(type) {
	case *dialer.HTTPConnect:
		got = described{Kind: "http", Addr: d.Addr, TLS: d.TLSConfig != nil}
		if d.Auth != nil {
			value, err := d.Auth.Authenticate(t.Context(), &dialer.Challenge{})
			if err != nil {
				t.Fatal(err)
			}
			got.User = value
		}
	case *dialer.SOCKS5:
		got = described{Kind: "socks5", Addr: d.Addr, LocalLookup: d.Resolver != nil}
		credentials = d.Credentials
	default:
		t.Fatalf("got a %T", d)
	}
	if credentials != nil {
		got.User, got.Password, _ = credentials(t.Context())
	}
	return got
}

func TestFromURL(t *testing.T) {
	for _, tt := range []struct {
		url  string
		want described
	}{
		{"http://proxy", described{Kind: "http", Addr: "proxy:80"}},
		{"http://proxy:3128/", described{Kind: "http", Addr: "proxy:3128"}},
		{"HTTP://proxy:", described{Kind: "http", Addr: "proxy:80"}},
		{"https://proxy", described{Kind: "http", Addr: "proxy:443", TLS: true}},
		{"http://[2001:db8::1]", described{Kind: "http", Addr: "[2001:db8::1]:80"}},
		{"http://[fe80::1%25eth0]:3128", described{Kind: "http", Addr: "[fe80::1%eth0]:3128"}},
		{"http://Aladdin:open%20sesame@proxy", described{Kind: "http", Addr: "proxy:80", User: "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}},
		{"http://user@proxy", described{Kind: "http", Addr: "proxy:80", User: "Basic dXNlcjo="}},
		{"http://user:@proxy", described{Kind: "http", Addr: "proxy:80", User: "Basic dXNlcjo="}},
		{"http://:pw@proxy", described{Kind: "http", Addr: "proxy:80", User: "Basic OnB3"}},
		{"http://@proxy", described{Kind: "http", Addr: "proxy:80"}},
		{"socks5://proxy", described{Kind: "socks5", Addr: "proxy:1080", LocalLookup: true}},
		{"socks5h://proxy", described{Kind: "socks5", Addr: "proxy:1080"}},
		{"socks5h://u:p%40ss%3Aw%2Frd%25+&'@proxy:1", described{Kind: "socks5", Addr: "proxy:1", User: "u", Password: "p@ss:w/rd%+&'"}},
		{"http+unix:///run/proxy.sock", described{Kind: "http", Addr: "unix:/run/proxy.sock"}},
		{"http+unix://Aladdin:open%20sesame@/run/a%20b%2Fc%25%3F.sock", described{Kind: "http", Addr: "unix:/run/a b/c%?.sock", User: "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}},
		{"socks5+unix:///run/proxy.sock", described{Kind: "socks5", Addr: "unix:/run/proxy.sock", LocalLookup: true}},
		{"socks5h+unix://u:p%40@/run/proxy.sock", described{Kind: "socks5", Addr: "unix:/run/proxy.sock", User: "u", Password: "p@"}},
		{"socks5://u@proxy", described{Kind: "socks5", Addr: "proxy:1080", User: "u", LocalLookup: true}},
	} {
		t.Run(tt.url, func(t *testing.T) {
			u, err := dialer.ParseURL(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			d, err := dialer.FromURL(u, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, describe(t, d)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestFromURLErrors(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, tt := range []struct{ url, want string }{
		{"", "no scheme"},
		{"proxy", "no scheme"},
		{"proxy:3128", "no // after its scheme"},
		{"user:pw@proxy:3128", "no // after its scheme"},
		{"ftp://proxy", `"ftp" is not http`},
		{"socks4://proxy", "socks4 is not supported"},
		{"socks4a://proxy:1080", "socks4a is not supported: use socks5 or socks5h"},
		{"SOCKS4A://proxy:1080", "socks4a is not supported"},
		{"http+unix://run/proxy.sock", "no absolute path"},
		{"http+unix:run/proxy.sock", "no absolute path"},
		{"http+unix://", "no absolute path"},
		{"http+unix:///", "no absolute path"},
		{"http+unix:///run/", "no absolute path"},
		{"http+unix:///run/proxy.sock?x", "more than a path"},
		{"http+unix:///run/proxy.sock#x", "more than a path"},
		{"http+unix:///run/%00", "NUL"},
		{"socks5+unix://:p@/run/proxy.sock", "user name is empty"},
		{"https+unix:///run/proxy.sock", `"https+unix" is not http`},
		{"socks://proxy", "no version"},
		{"http://", "no host"},
		{"http:proxy", "no host"},
		{"http://:3128", "no host"},
		{"http://proxy:0", "1 to 65535"},
		{"http://proxy:65536", "1 to 65535"},
		{"http://proxy:x", "percent-encode"},
		{"http://proxy/path", "more than a host"},
		{"http://proxy?x", "more than a host"},
		{"http://proxy?", "more than a host"},
		{"http://proxy#x", "more than a host"},
		{"http://us%zz@proxy", "%25"},
		{"http://a b@proxy", "percent-encode"},
		{"http://a%3Ab:c@proxy", "colon"},
		{"http://a:%0d%0aX@proxy", "control character"},
		{"socks5://:pw@proxy", "user name is empty"},
		{"socks5://" + long + "@proxy", "user name has 256 bytes"},
		{"socks5://u:" + long + "@proxy", "password has 256 bytes"},
	} {
		t.Run(tt.url, func(t *testing.T) {
			u, err := dialer.ParseURL(tt.url)
			if err == nil {
				_, err = dialer.FromURL(u, nil)
			}
			var e *dialer.Error
			if !errors.As(err, &e) || e.Phase != dialer.PhaseConfig {
				t.Fatalf("got %v, want an *Error of the config phase", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, want it to contain %q", err, tt.want)
			}
		})
	}
	if _, err := dialer.FromURL(nil, nil); err == nil {
		t.Error("nil URL: got no error")
	}
	// FromURL checks by itself what did not pass through ParseURL.
	if _, err := dialer.FromURL(&url.URL{Scheme: "http", Host: "proxy:x"}, nil); err == nil {
		t.Error("bad port: got no error")
	}
}
