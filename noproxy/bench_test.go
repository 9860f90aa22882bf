package noproxy_test

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/net/http/httpproxy"

	"github.com/causewayproject/causeway/noproxy"
)

var sizes = []int{10, 100, 1_000, 10_000, 100_000}

// benchEntry returns the i-th item of a list that is half names and half
// addresses. No two address ranges touch: merging must not help.
func benchEntry(i int) string {
	switch i % 8 {
	case 1, 7:
		return benchAddr(i).String() + "/24"
	case 3:
		return benchAddr(i).String()
	case 5:
		return fmt.Sprintf("2001:db8:%x:%x::/64", i>>16, i&0xffff)
	case 2, 6:
		return fmt.Sprintf(".zone-%d.example.net", i)
	default:
		return fmt.Sprintf("service-%d.example.com", i)
	}
}

// benchAddr is the address of item i: an even /24 above 11.0.0.0.
func benchAddr(i int) netip.Addr {
	n := 11<<24 + uint32(i)*512
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func benchList(entries int) string {
	items := make([]string, entries)
	for i := range items {
		items[i] = benchEntry(i)
	}
	return strings.Join(items, ",")
}

// benchCase is a question about the list of benchList(entries).
type benchCase struct {
	name, host string
	want       bool
}

func benchCases(entries int) []benchCase {
	last := entries - 2 // entries is even, so this is a name and the next an address
	lastAddr := last + 1
	for lastAddr%8 == 5 { // the IPv6 item
		lastAddr -= 2
	}
	return []benchCase{
		{"last-domain", "www." + strings.TrimPrefix(benchEntry(last), "."), true},
		{"miss-name", "registry.eu-west-1.example.org", false},
		{"hit-ip", benchAddr(lastAddr).String(), true},
		{"miss-ip", benchAddr(entries / 2).Next().String(), false},
	}
}

func proxyFunc(list string) func(*url.URL) (*url.URL, error) {
	cfg := httpproxy.Config{HTTPSProxy: "http://proxy.test:3128", NoProxy: list}
	return cfg.ProxyFunc()
}

func BenchmarkBypass(b *testing.B) {
	for _, entries := range sizes {
		list := benchList(entries)
		rules, proxy := noproxy.Parse(list), proxyFunc(list)
		for _, c := range benchCases(entries) {
			b.Run(fmt.Sprintf("entries=%d/case=%s/impl=causeway", entries, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if rules.Bypass(c.host, "443") != c.want {
						b.Fatalf("Bypass(%q): got %v", c.host, !c.want)
					}
				}
			})
			b.Run(fmt.Sprintf("entries=%d/case=%s/impl=httpproxy", entries, c.name), func(b *testing.B) {
				b.ReportAllocs()
				u := &url.URL{Scheme: "https", Host: net.JoinHostPort(c.host, "443")}
				for b.Loop() {
					if p, _ := proxy(u); (p == nil) != c.want {
						b.Fatalf("ProxyFunc(%q): got %v", c.host, !c.want)
					}
				}
			})
		}
	}
}

func BenchmarkParse(b *testing.B) {
	parse := map[string]func(string) any{
		"causeway":  func(list string) any { return noproxy.Parse(list) },
		"httpproxy": func(list string) any { return proxyFunc(list) },
	}
	for _, entries := range sizes {
		list := benchList(entries)
		for _, impl := range []string{"causeway", "httpproxy"} {
			b.Run(fmt.Sprintf("entries=%d/impl=%s", entries, impl), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					parse[impl](list)
				}
				b.ReportMetric(retained(func() any { return parse[impl](list) })/float64(entries), "B/entry")
			})
		}
	}
}

// retained returns how many bytes of heap one result of f keeps alive, without
// the list, which the caller has. It makes several results, since the runtime's
// own allocations are in the difference.
func retained(f func() any) float64 {
	keep := make([]any, 16)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range keep {
		keep[i] = f()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(keep)
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(len(keep))
}

func BenchmarkLint(b *testing.B) {
	for _, entries := range []int{10, 100} {
		list := benchList(entries)
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				noproxy.Lint(list)
			}
		})
	}
}
