package noproxy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/noproxy"
)

func TestFor(t *testing.T) {
	tests := []struct {
		consumer   noproxy.Consumer
		list, want string
		findings   string
	}{
		{noproxy.Go, "a.com,*.b.com,[2001:db8::1]:443,10.0.0.0/8", "a.com,*.b.com,[2001:db8::1]:443,10.0.0.0/8", ""},
		{noproxy.Go, "a.com,*", "a.com,*", ""},
		{noproxy.Go, "10.0.0.0/99,a.com", "a.com",
			"\n" + `go: entry 0 "10.0.0.0/99": is not given what covers nothing; write it differently: not a network; write an address, a slash and a length that fits it`},
		{noproxy.Curl, ".a.com", ".a.com",
			"\n" + `curl: entry 0 ".a.com": is given ".a.com", which also covers "a.com" itself; write the names below "a.com" one by one if the name itself must use the proxy`},
		{noproxy.Curl, "*.a.com,b.com", ".a.com,b.com",
			"\n" + `curl: entry 0 "*.a.com": is given ".a.com", which also covers "a.com" itself; write the names below "a.com" one by one if the name itself must use the proxy`},
		{noproxy.Curl, "a.com:443,b.com", "b.com",
			"\n" + `curl: entry 0 "a.com:443": cannot be told, and sends www.a.com:443 through the proxy; write "a.com" if every port may be reached directly`},
		{noproxy.Curl, "a.com,*,b.com", "*",
			"\n" + `curl: entry 1 "*": reads it only as the whole list, so the other entries, which add nothing, are left out; write no "*"`},
		{noproxy.Curl, "*", "*", ""},
		{noproxy.Wget, "a.com,*", "a.com",
			"\n" + `wget: entry 1 "*": cannot be told, and sends https://host.example/ through the proxy; write nothing for it, and set no proxy`},
		{noproxy.Wget, "*.a.com,2001:DB8:0::1,BÜCHER.example", ".a.com,2001:db8::1,xn--bcher-kva.example", ""},
		{noproxy.Wget, "10.0.0.0/8,10.0.0.1,10.0.0.10", "10.0.0.1,10.0.0.10",
			"\n" + `wget: entry 0 "10.0.0.0/8": cannot be told, and sends https://10.0.0.0/ through the proxy; write the addresses that matter, one by one`},
		{noproxy.Urllib, "2001:db8::1,a.com", "[2001:db8::1],a.com", ""},
		{noproxy.Urllib, "a.com:443", "a.com:443",
			"\n" + `urllib: entry 0 "a.com:443": is given "a.com:443", and sends https://www.a.com/ through the proxy; write "a.com" if every port may be reached directly`},
		{noproxy.Urllib, ".a.com:443", ".a.com:443",
			"\n" + `urllib: entry 0 ".a.com:443": is given ".a.com:443", which also covers "a.com" itself, and sends https://www.a.com/ through the proxy; write ".a.com" if every port may be reached directly`},
		{noproxy.Requests, "10.0.0.0/8,10.0.0.1,2001:db8::/32", "10.0.0.0/8",
			"\n" + `requests: entry 2 "2001:db8::/32": cannot be told, and sends https://[2001:db8::]/ through the proxy; write the addresses that matter, one by one`},
		{noproxy.Ruby, "2001:db8::1,10.0.0.1:443,*.a.com", "10.0.0.1:443,.a.com",
			"\n" + `ruby: entry 0 "2001:db8::1": cannot be told, and sends https://[2001:db8::1]/ through the proxy; write nothing for it: there is no way to say it`},
		{noproxy.Undici, ".a.com,*", "*.a.com,*", ""},
		{noproxy.JVM, "a.com,.b.com,2001:db8::1,10.0.0.1,a.com", "a.com|*.a.com|*.b.com|[2001:db8::1]|10.0.0.1", ""},
		{noproxy.JVM, "10.0.0.0/7", "10.*|11.*",
			"\n" + `jvm: entry 0 "10.0.0.0/7": is given "10.*|11.*", which also covers names that begin with the same numbers; write the addresses one by one if such names must use the proxy`},
		{noproxy.JVM, "10.0.0.4/31", "10.0.0.4|10.0.0.5", ""},
		{noproxy.JVM, "*", "*", ""},
		{noproxy.JVM, "0.0.0.1", "0.0.0.1", ""}, // beside what is implied
		{noproxy.JVM, "http://u:hunter2@proxy", "",
			"\n" + `jvm: entry 0 "http://redacted": does not read a URL or credentials; write the host alone`},
		{noproxy.JVM, "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.consumer.String()+"/"+tt.list, func(t *testing.T) {
			got, findings := noproxy.Merge(noproxy.ParseList(tt.list, "test")).For(tt.consumer)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("For (-want +got):\n%s", diff)
			}
			var text strings.Builder
			for _, f := range findings {
				fmt.Fprintf(&text, "\n%v", f)
			}
			if diff := cmp.Diff(tt.findings, text.String()); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// checkFor holds what a consumer makes of its own list against what Go makes of
// the whole: never more without a finding that says so, less only with one.
func checkFor(t *testing.T, l noproxy.List, c noproxy.Consumer, questions []question) {
	t.Helper()
	text, findings := l.For(c)
	also := false
	for _, f := range findings {
		also = also || strings.Contains(f.Does, "also covers")
	}
	for _, q := range questions {
		if !isUsual(q) || q.host == "localhost" {
			continue
		}
		got, want := c.Bypass(text, q.host, q.port), noproxy.Go.Bypass(l.String(), q.host, q.port)
		if got && !want && !also || !got && want && len(findings) == 0 {
			t.Errorf("%q.For(%v) is %q, about %q: got %v, want %v, with %v", l, c, text, q, got, want, findings)
		}
	}
}

func TestForNeverCoversMore(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(15, 16))}
	for range 300 {
		items := g.items()
		if len(items) > 20 {
			continue
		}
		l := noproxy.Merge(noproxy.ParseList(strings.Join(items, ","), "test"))
		questions := make([]question, 16)
		for i := range questions {
			questions[i] = g.question(items)
		}
		for _, c := range noproxy.Consumers() {
			checkFor(t, l, c, questions)
		}
	}
}

func FuzzFor(f *testing.F) {
	for _, v := range loadVectors(f) {
		f.Add(v.NoProxy, v.Host, v.Port)
	}
	f.Fuzz(func(t *testing.T, list, host, port string) {
		if len(list) > 1000 {
			return
		}
		l := noproxy.Merge(noproxy.ParseList(list, "test"))
		for _, c := range noproxy.Consumers() {
			checkFor(t, l, c, []question{{host, port}, {"www." + host, port}})
		}
	})
}
