package noproxy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/idna"

	"github.com/causewayproject/causeway/noproxy"
)

func TestLint(t *testing.T) {
	const direct = "connects directly to %s, which Go sends through the proxy"
	const proxied = "sends %s through the proxy, where Go connects directly"
	tests := []struct {
		name, list string
		consumer   noproxy.Consumer
		host       string
		does       string
		write      string
	}{
		{"apex", ".example.com", noproxy.Curl, "https://example.com/", direct, `"example.com" if the name itself may be reached directly`},
		{"apex", ".example.com", noproxy.Requests, "https://example.com/", direct, `"example.com" if the name itself may be reached directly`},
		{"dot", ".example.com", noproxy.JVM, "https://www.example.com/", proxied, `"*.example.com" for it`},
		{"dot", ".example.com", noproxy.Undici, "https://example.com/", direct, `"*.example.com" for it`},
		{"name", "example.com", noproxy.JVM, "https://www.example.com/", proxied, `"example.com|*.example.com" for it`},
		{"asterisk", "*.example.com", noproxy.Wget, "https://www.example.com/", proxied, `".example.com" for it`},
		{"network", "10.0.0.0/8", noproxy.Wget, "https://10.0.0.0/", proxied, "the addresses that matter, one by one"},
		{"network", "10.0.0.0/8", noproxy.JVM, "https://10.0.0.0/", proxied, `"10.*" for it, which also covers names that begin with the same numbers`},
		{"network", "172.16.0.0/15", noproxy.JVM, "https://172.16.0.0/", proxied, `"172.16.*|172.17.*" for it, which also covers names that begin with the same numbers`},
		{"network", "10.96.0.0/12", noproxy.JVM, "https://10.96.0.0/", proxied, `"10.96.*|...|10.111.*" for it, which also covers names that begin with the same numbers`},
		{"IPv6 network", "2001:db8::/32", noproxy.Requests, "https://[2001:db8::]/", proxied, "the addresses that matter, one by one"},
		{"IPv6 network", "2001:db8::/32", noproxy.Ruby, "https://[2001:db8::]/", proxied, "nothing for it: there is no way to say it"},
		{"all of IPv4", "0.0.0.0/0", noproxy.Curl, "https://255.255.255.255/", proxied, "the addresses that matter, one by one"},
		{"IPv6", "2001:db8::1", noproxy.Urllib, "https://[2001:db8::1]/", proxied, `"[2001:db8::1]" for it`},
		{"IPv6", "2001:db8::1", noproxy.Ruby, "https://[2001:db8::1]/", proxied, "nothing for it: there is no way to say it"},
		{"IPv6 in long", "2001:DB8:0::1", noproxy.Wget, "https://[2001:db8::1]/", proxied, `"2001:db8::1" for it`},
		{"mapped", "::ffff:10.0.0.1", noproxy.Curl, "https://10.0.0.1/", proxied, `"10.0.0.1" for it`},
		{"port", "example.com:8443", noproxy.Curl, "www.example.com:8443", proxied, `"example.com" if every port may be reached directly`},
		{"port", ".example.com:8443", noproxy.Wget, "www.example.com:8443", proxied, `".example.com" if every port may be reached directly`},
		{"port", "10.0.0.1:8443", noproxy.Wget, "10.0.0.1:8443", proxied, `"10.0.0.1" if every port may be reached directly`},
		{"port of a scheme", "example.com:443", noproxy.Urllib, "https://www.example.com/", proxied, `"example.com" if every port may be reached directly`},
		{"IDN", "bücher.example", noproxy.Curl, "https://www.xn--bcher-kva.example/", proxied, `"xn--bcher-kva.example" for it`},
		{"trailing dot", "example.com.", noproxy.Curl, "https://example.com/", direct, `nothing for it: there is no way to say it`},
		{"everything", "*", noproxy.Wget, "https://host.example/", proxied, "nothing for it, and set no proxy"},
	}
	for _, tt := range tests {
		t.Run(tt.consumer.String()+"/"+tt.name, func(t *testing.T) {
			list := "localhost,127.0.0.1,::1,[::1]," + tt.list
			if tt.consumer == noproxy.Ruby || strings.Contains(tt.list, "/") {
				list = "localhost,127.0.0.1," + tt.list
			}
			if tt.list == "*" {
				list = tt.list
			}
			var got []noproxy.Finding
			for _, f := range noproxy.Lint(list, tt.consumer) {
				if f.Index >= 0 && f.Text == tt.list {
					f.Index = 0
					got = append(got, f)
				}
			}
			want := []noproxy.Finding{{Text: tt.list, Consumer: tt.consumer, Does: fmt.Sprintf(tt.does, tt.host), Write: tt.write}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Lint(%q) (-want +got):\n%s", list, diff)
			}
		})
	}
}

// TestLintBlames has findings that depend on what else is in the list.
func TestLintBlames(t *testing.T) {
	tests := []struct {
		name, list string
		consumers  []noproxy.Consumer
		want       string
	}{
		{"nothing", "localhost,127.0.0.1,::1,[::1],example.com,10.0.0.1", []noproxy.Consumer{noproxy.Go, noproxy.Wget, noproxy.Urllib, noproxy.Undici}, `
go: entry 3 "[::1]": covers nothing with it; write it differently: brackets need a port; write the address without them`},
		{"loopback", "example.com", []noproxy.Consumer{noproxy.Curl, noproxy.Urllib, noproxy.Ruby, noproxy.JVM}, `
curl: sends localhost through the proxy unless it is listed; write localhost,127.0.0.1,::1
urllib: sends localhost through the proxy unless it is listed; write localhost,127.0.0.1,[::1]
jvm: entry 0 "example.com": sends https://www.example.com/ through the proxy, where Go connects directly; write "example.com|*.example.com" for it`},
		{"another entry says it", "localhost,127.0.0.1,::1,.example.com,example.com", []noproxy.Consumer{noproxy.Curl, noproxy.Wget, noproxy.Requests}, ``},
		{"asterisk that is not alone", "localhost,127.0.0.1,::1,example.com,*", []noproxy.Consumer{noproxy.Curl}, `
curl: entry 4 "*": sends https://notlocalhost/ through the proxy, where Go connects directly; write "*" for it, as the whole list`},
		{"last group", "2001:db8::7", []noproxy.Consumer{noproxy.Ruby}, `
ruby: entry 0 "2001:db8::7": sends https://[2001:db8::7]/ through the proxy, where Go connects directly; write nothing for it: there is no way to say it`},
		{"blank beside a comma", "10.0.0.1, 10.0.0.2", []noproxy.Consumer{noproxy.JVM}, `
jvm: entry 1 "10.0.0.2": sends https://10.0.0.2/ through the proxy, where Go connects directly; write the entries of the list so that only commas separate them`},
		{"space", "localhost,127.0.0.1,::1,a.com b.com", []noproxy.Consumer{noproxy.Go, noproxy.Undici}, `
go: entry 3 "a.com b.com": covers nothing with it; write it differently: white space does not separate items; write a comma
undici: entry 3 "a.com b.com": connects directly to https://www.a.com/, which Go sends through the proxy; write it differently: white space does not separate items; write a comma`},
		{"credentials", "http://u:hunter2@proxy", []noproxy.Consumer{noproxy.Ruby}, `
ruby: entry 0 "http://redacted": makes no sense of a URL or of credentials; write the host alone`},
		{"a part of a password that is a name", "http://u:a,hunter2,b@proxy", []noproxy.Consumer{noproxy.JVM}, `
jvm: entry 0 "http://redacted": makes no sense of a URL or of credentials; write the host alone
jvm: entry 1 "redacted": makes no sense of a URL or of credentials; write the host alone
jvm: entry 2 "redacted": makes no sense of a URL or of credentials; write the host alone`},
		{"a part of a password that is blamed", "http://u:a,hunter2,b@proxy,hunter2:1", []noproxy.Consumer{noproxy.JVM}, `
jvm: entry 0 "http://redacted": makes no sense of a URL or of credentials; write the host alone
jvm: entry 1 "redacted": makes no sense of a URL or of credentials; write the host alone
jvm: entry 2 "redacted": makes no sense of a URL or of credentials; write the host alone
jvm: entry 3 "hunter2:1": sends www.hunter2:1 through the proxy, where Go connects directly; write "hunter2" if every port may be reached directly`},
		{"implied by the consumer", "0.0.0.1", []noproxy.Consumer{noproxy.JVM}, ``},
		{"each consumer once", "*.a.com", []noproxy.Consumer{noproxy.Ruby, noproxy.Ruby}, `
ruby: entry 0 "*.a.com": sends https://www.a.com/ through the proxy, where Go connects directly; write ".a.com" for it`},
		{"empty", "", []noproxy.Consumer{noproxy.Go, noproxy.Ruby}, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got strings.Builder
			for _, f := range noproxy.Lint(tt.list, tt.consumers...) {
				fmt.Fprintf(&got, "\n%v", f)
			}
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Errorf("Lint(%q) (-want +got):\n%s", tt.list, diff)
			}
		})
	}
}

func TestLintAllConsumers(t *testing.T) {
	list := "10.0.0.0/8,.example.com,bücher.example:443"
	if diff := cmp.Diff(noproxy.Lint(list, noproxy.Consumers()...), noproxy.Lint(list)); diff != "" {
		t.Errorf("without consumers (-all +none):\n%s", diff)
	}
}

// TestLintOncePerEntry also has the asterisk that is blamed for others.
func TestLintOncePerEntry(t *testing.T) {
	for _, list := range []string{"a.com,http://u:p,b.com,x@h,*,c.com,*", ".a.com,*.b.com,c.com:443,10.0.0.0/8,2001:db8::/32"} {
		type key struct {
			index    int
			consumer noproxy.Consumer
		}
		seen := make(map[key]bool)
		last := -1
		for _, f := range noproxy.Lint(list) {
			if seen[key{f.Index, f.Consumer}] || f.Index < last {
				t.Errorf("Lint(%q): got %v again or out of order", list, f)
			}
			seen[key{f.Index, f.Consumer}] = true
			last = f.Index
		}
	}
}

// isUsual reports whether Lint promises anything about the host.
func isUsual(q question) bool {
	if !isHost(q) || strings.HasSuffix(q.host, ".") || strings.ToLower(q.host) != q.host {
		return false
	}
	for i := range len(q.host) {
		if q.host[i] >= 0x80 {
			return false
		}
	}
	if a, err := netip.ParseAddr(q.host); err == nil {
		return !a.Is4In6() && a.Zone() == "" && a.String() == q.host && !a.IsLoopback() && !a.IsUnspecified()
	}
	if _, err := idna.Lookup.ToASCII(q.host); strings.Contains("."+q.host, ".xn--") && (err != nil || strings.Contains("."+q.host+".", ".xn--.")) {
		return false // in a URL of JavaScript
	}
	return !hexPattern.MatchString(q.host) && !strings.HasPrefix(q.host, "127.")
}

// hexPattern matches names that are addresses for C, such as 0xa000001.
var hexPattern = regexp.MustCompile(`(^|\.)0x[0-9a-f]*$`)

// checkLint asks the consumers of a list without findings about hosts.
func checkLint(t *testing.T, list string, consumers []noproxy.Consumer, questions []question) (asked, bypassed int) {
	t.Helper()
	if len(noproxy.Lint(list, consumers...)) > 0 {
		return 0, 0
	}
	for _, q := range questions {
		if !isUsual(q) {
			continue
		}
		for _, port := range []string{q.port, "https", "http"} {
			want := noproxy.Go.Bypass(list, q.host, port)
			for _, c := range consumers {
				if got := c.Bypass(list, q.host, port); got != want {
					t.Errorf("%v.Bypass(%q, %q, %q): got %v, want %v as Go, for Lint finds nothing", c, list, q.host, port, got, want)
				}
			}
			asked++
			if want {
				bypassed++
			}
		}
	}
	return asked, bypassed
}

func TestLintFindsEveryDifference(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(9, 10))}
	asked, bypassed := 0, 0
	for range 5000 {
		items := []string{"localhost", "127.0.0.1", "::1", "[::1]"}[:pick(g, 0, 2, 3, 4)]
		for range g.IntN(4) {
			items = append(items, g.item())
		}
		consumers := []noproxy.Consumer{pick(g, noproxy.Consumers()...), pick(g, noproxy.Consumers()...)}
		questions := make([]question, 8)
		for i := range questions {
			questions[i] = g.question(items)
		}
		a, b := checkLint(t, strings.Join(items, ","), consumers, questions)
		asked, bypassed = asked+a, bypassed+b
	}
	if asked < 2000 || bypassed < 200 {
		t.Errorf("got %d questions and %d bypasses: too few to mean anything", asked, bypassed)
	}
}

func FuzzLint(f *testing.F) {
	for i, v := range loadVectors(f) {
		f.Add(v.NoProxy, v.Host, v.Port, uint8(i))
	}
	// What the fuzzer found: Ruby takes 68 for a port and .1.1 for an item.
	f.Add("*.:68.1.1", "192.168.1.1", "80", uint8(noproxy.Ruby-1))
	f.Add("x:6a", "www.a", "80", uint8(noproxy.Ruby-1))
	f.Add("*.A*", "www.a", "1", uint8(noproxy.JVM-1))
	f.Add("10.0.0.1,10:0.0.2:80", "10.0.0.2", "80", uint8(noproxy.Ruby-1))
	f.Fuzz(func(t *testing.T, list, host, port string, consumer uint8) {
		if len(list) > 1000 {
			return
		}
		all := noproxy.Consumers()
		questions := []question{{host, port}, {"www." + host, port}}
		checkLint(t, list, []noproxy.Consumer{all[int(consumer)%len(all)]}, questions)
	})
}
