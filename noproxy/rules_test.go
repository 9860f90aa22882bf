package noproxy_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/causewayproject/causeway/noproxy"
)

func TestZeroRules(t *testing.T) {
	tests := []struct {
		host string
		want bool
	}{
		{"localhost", true},
		{"127.0.0.1", true},
		{"::1", true},
		{"example.com", false},
		{"EXAMPLE.com", false},
		{"bücher.example", false},
		{"10.0.0.1", false},
		{"2001:db8::1", false},
		{"", false},
	}
	rules := map[string]*noproxy.Rules{"nil": nil, "zero": {}, "empty list": noproxy.Parse("")}
	for name, r := range rules {
		t.Run(name, func(t *testing.T) {
			for _, tt := range tests {
				if got := r.Bypass(tt.host, "443"); got != tt.want {
					t.Errorf("Bypass(%q): got %v, want %v", tt.host, got, tt.want)
				}
			}
			if got := r.String(); got != "" {
				t.Errorf("String: got %q, want none", got)
			}
		})
	}
}

func TestString(t *testing.T) {
	for _, list := range []string{"", " A.com,, 10.0.0.0/8 ,", "a.com,*,b.com"} {
		if got := noproxy.Parse(list).String(); got != list {
			t.Errorf("String: got %q, want %q", got, list)
		}
	}
}

// TestNoPort is about a port that no URL has, so that httpproxy has no say.
func TestNoPort(t *testing.T) {
	r := noproxy.Parse("a.com,b.com:443,10.0.0.1,10.0.0.2:443,c.com:")
	for host, want := range map[string]bool{
		"a.com": true, "b.com": false, "10.0.0.1": true, "10.0.0.2": false, "c.com": true,
	} {
		if got := r.Bypass(host, ""); got != want {
			t.Errorf("Bypass(%q, \"\"): got %v, want %v", host, got, want)
		}
	}
}

// TestRanges is about the ends of ranges and what merging makes of them.
func TestRanges(t *testing.T) {
	const (
		last4 = "255.255.255.255"
		last6 = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	)
	tests := []struct {
		name, list string
		in, out    []string
	}{
		{"all of IPv4", "0.0.0.0/0", []string{"0.0.0.0", "9.9.9.9", last4}, []string{"::", last6}},
		{"all of IPv6", "::/0", []string{"::", "2001:db8::1", last6}, []string{"0.0.0.0", last4}},
		{"all of both", "::/0,0.0.0.0/0", []string{"::", last6, "0.0.0.0", last4}, nil},
		{"all and more", "::/0,::/1,8000::/1," + last6, []string{"::", "8000::", last6}, []string{"10.0.0.1"}},
		{"more and all", last4 + ",128.0.0.0/1,0.0.0.0/0", []string{"0.0.0.0", last4}, []string{last6}},
		{"last of IPv4", last4, []string{last4}, []string{"255.255.255.254", "0.0.0.0"}},
		{"last of IPv6", last6, []string{last6}, []string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", "::"}},
		{"first of IPv4", "0.0.0.0", []string{"0.0.0.0"}, []string{"0.0.0.1", last4}},
		{"first of IPv6", "::", []string{"::"}, []string{"::2", last6}},
		{"both ends of IPv4", "0.0.0.0," + last4, []string{"0.0.0.0", last4}, []string{"0.0.0.1", "128.0.0.0"}},
		{"both ends of IPv6", "::," + last6, []string{"::", last6}, []string{"::2", "8000::"}},
		{"both halves of IPv4", "128.0.0.0/1,0.0.0.0/1", []string{"0.0.0.0", "128.0.0.0", last4}, nil},
		{"both halves of IPv6", "8000::/1,::/1", []string{"::", "8000::", last6}, nil},
		{"adjacent", "10.0.1.0/24,10.0.0.0/24", []string{"10.0.0.0", "10.0.0.255", "10.0.1.0", "10.0.1.255"},
			[]string{"9.255.255.255", "10.0.2.0"}},
		{"gap of one", "10.0.0.0/32,10.0.0.2/32", []string{"10.0.0.0", "10.0.0.2"},
			[]string{"9.255.255.255", "10.0.0.1", "10.0.0.3"}},
		{"inside, before", "10.0.0.0/8,10.1.0.0/16,11.0.0.0", []string{"10.0.0.0", "10.1.0.0", "10.255.255.255", "11.0.0.0"},
			[]string{"11.0.0.1"}},
		{"inside, after", "10.0.0.0/16,10.0.0.0/8", []string{"10.0.0.0", "10.1.0.0", "10.255.255.255"}, []string{"11.0.0.0"}},
		{"twice", "10.0.0.0/8,10.0.0.0/8", []string{"10.0.0.0", "10.255.255.255"}, []string{"11.0.0.0"}},
		{"across the low half of IPv6", "2001:db8::/64,2001:db8:0:1::",
			[]string{"2001:db8::ffff:ffff:ffff:ffff", "2001:db8:0:1::"}, []string{"2001:db8:0:1::1"}},
		{"length 64", "2001:db8::/64", []string{"2001:db8::", "2001:db8::ffff:ffff:ffff:ffff"},
			[]string{"2001:db8:0:1::", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff"}},
		{"length 63", "2001:db8::/63", []string{"2001:db8:0:1::", "2001:db8:0:1:ffff::"}, []string{"2001:db8:0:2::"}},
		{"length 65", "2001:db8::/65", []string{"2001:db8::7fff:0:0:0"}, []string{"2001:db8::8000:0:0:0"}},
		{"length 128", "2001:db8::1/128", []string{"2001:db8::1"}, []string{"2001:db8::", "2001:db8::2"}},
		{"length 32", "10.0.0.1/32", []string{"10.0.0.1"}, []string{"10.0.0.0", "10.0.0.2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, host := range tt.in {
				checkBypass(t, tt.list, host, "443", true)
			}
			for _, host := range tt.out {
				checkBypass(t, tt.list, host, "443", false)
			}
		})
	}
}

// everyKind is a list with an item of each kind, besides the lone asterisk.
const everyKind = "example.com,.sub.example.net,*.wild.example,ported.example:8443," +
	"10.0.0.0/8,192.0.2.1,192.0.2.2:8443,2001:db8::/32,2001:db8:1::1,[2001:db9::2]:8443,bücher.example"

func TestBypassAllocatesNothing(t *testing.T) {
	listed := noproxy.Parse(everyKind)
	hosts := []string{
		"", "localhost", "example.com", "a.b.example.com", "sub.example.net", "a.sub.example.net",
		"miss.example.org", "WWW.Example.COM", "MISS.Example.ORG", strings.ToUpper(strings.Repeat("abc.", 63)),
		" spaced.example.com ", "ported.example", "PORTED.example", "xn--bcher-kva.example", "example.com.",
		strings.Repeat("long.", 100) + "example.com", strings.Repeat(".", 1000),
		"127.0.0.1", "10.1.2.3", "11.1.2.3", "192.0.2.1", "192.0.2.2", "192.168.001.001", "10.0.0", "300.1.1.1",
		"::1", "2001:db8::1", "2001:db9::1", "2001:db9::2", "2001:DB9::3", "fe80::1%eth0", "::ffff:10.0.0.1",
	}
	for name, r := range map[string]*noproxy.Rules{"nil": nil, "all": noproxy.Parse("*"), "listed": listed} {
		for _, host := range hosts {
			for _, port := range []string{"443", "8443"} {
				if n := testing.AllocsPerRun(10, func() { r.Bypass(host, port) }); n != 0 {
					t.Errorf("%s rules, Bypass(%q, %q): got %v allocations, want none", name, host, port, n)
				}
			}
		}
	}
}

func TestBypassConcurrently(t *testing.T) {
	r := noproxy.Parse(everyKind)
	want := map[string]bool{
		"a.example.com": true, "A.Example.COM": true, "example.org": false, "bücher.example": true,
		"10.1.2.3": true, "11.1.2.3": false, "2001:db8::1": true, "2001:db9::2": false,
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				for host, want := range want {
					if got := r.Bypass(host, "443"); got != want {
						t.Errorf("Bypass(%q): got %v, want %v", host, got, want)
					}
				}
			}
		})
	}
	wg.Wait()
}
