package dialer_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/dialer"
)

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

func TestParsePatternsErrors(t *testing.T) {
	for _, tt := range []struct{ pattern, want string }{
		{"", "it is empty"},
		{" ", "it is empty"},
		{"a,b", "holds a comma"},
		{"a b", "white space"},
		{"a@b", "credentials"},
		{"..example.com", "an empty label"},
		{"a..example.com", "an empty label"},
		{":443", "a port without a host"},
		{"**", "an asterisk stands alone"},
		{"*example.com", "an asterisk stands alone"},
		{"a.*.example.com", "an asterisk stands alone"},
		{"10.0.0.*", "an asterisk stands alone"},
		{"http://example.com", "a URL"},
		{"http://user:canary@proxy", "a URL"},
		{"user:canary@proxy", "credentials"},
		{"[example.com]", "brackets need a port"},
		{"example.com/path", "not a network"},
		{"10.0.0.0/33", "not a network"},
		{"10.0.0.0/", "not a network"},
		{"fe80::%eth0/64", "not a network"},
		{"10.0.0", "not an address"},
		{"10.0.0.256", "not an address"},
		{"010.0.0.1", "not an address"},
		{"10.0.0.1.", "not an address"},
		{"fe80::1%eth0", "a zone"},
		{"[fe80::1%eth0]:443", "a zone"},
		{"[2001:db8::1]", "brackets need a port"},
		{"2001:db8::1:443:x", "neither an IPv6 address"},
		{"example.com:https", "the port is not a number"},
		{"example.com:0443", "the port is not a number"},
		{"example.com:0", "the port is not a number"},
		{"example.com:65536", "the port is not a number"},
		{"\u0301ü.example", "internationalised"},
		{"１0.0.0.1", "not an address"},
	} {
		t.Run(tt.pattern, func(t *testing.T) {
			_, err := dialer.ParsePatterns("example.com", tt.pattern)
			checkConfigError(t, err, tt.want)
			if !strings.Contains(err.Error(), "pattern 2") || strings.Contains(err.Error(), "canary") {
				t.Errorf("got %q, want it to name pattern 2", err)
			}
		})
	}
	_, err := dialer.ParsePatterns()
	checkConfigError(t, err, "no pattern")
	_, err = dialer.ParsePatterns("10.0.0.0/99", "ok", "a b")
	checkConfigError(t, err, `pattern 1, "10.0.0.0/99"`)
	checkConfigError(t, err, `pattern 3, "a b"`)
}

func TestPatternsString(t *testing.T) {
	list := []string{"*.svc", "10.0.0.0/8"}
	p, err := dialer.ParsePatterns(list...)
	if err != nil {
		t.Fatal(err)
	}
	list[0] = "other"
	if got, want := p.String(), "*.svc,10.0.0.0/8"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (*dialer.Patterns)(nil).String(); got != "" {
		t.Errorf("nil: got %q", got)
	}
}

// A pattern that is accepted matches something: what it shows itself.
func FuzzParsePatterns(f *testing.F) {
	for _, seed := range []string{
		"*", "example.com", ".example.com", "*.Example.com:443", "example.com.", "bücher.example", "xn--bcher-kva.example:1",
		"10.0.0.1", "10.0.0.1:443", "10.0.0.0/8", "::/0", "2001:db8::1", "[2001:db8::1]:443", "::ffff:10.0.0.0/104", "::ffff:127.0.0.1",
		"localhost", "localhost:80", "127.0.0.0/8", "::1", "１0.0.0.1", "a_b.example", "[::1]", "10.0.0", "a*", "..", ":", "", "\x8c", "\u077c._", "\u04c0", "::/0:1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		p, err := dialer.ParsePatterns(pattern)
		if err != nil {
			return
		}
		// In lower case, as a list is read: of some letters only that is a name.
		host, port := strings.ToLower(strings.TrimSpace(pattern)), "1"
		if h, p, err := net.SplitHostPort(host); err == nil {
			host = h
			if p != "" {
				port = p
			}
		} else if slash := strings.LastIndex(host, "/"); slash >= 0 {
			if bits, p, ok := strings.Cut(host[slash:], ":"); ok { // ::/0:443
				host, port = host[:slash]+bits, p
			}
		}
		// net.ParseCIDR, which decides, takes /08 as well.
		if _, network, err := net.ParseCIDR(host); err == nil {
			host = network.IP.String()
		}
		if below, ok := strings.CutPrefix(strings.TrimPrefix(host, "*"), "."); ok {
			host = "x." + below
		}
		r := &dialer.Router{Routes: []dialer.Route{{Match: p, Dialer: way("routed")}}, Default: way("default")}
		if got := wayOf(t, r, net.JoinHostPort(strings.Replace(host, "*", "x", 1), port)); got != "routed" {
			t.Errorf("%q does not match %q", pattern, host)
		}
	})
}
