package noproxy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/noproxy"
)

func TestListJVM(t *testing.T) {
	tests := []struct {
		list, want string
		findings   string
	}{
		{"a.com,.b.com,2001:db8::1,10.0.0.1,a.com", "a.com|*.a.com|*.b.com|[2001:db8::1]|10.0.0.1", ""},
		{"10.0.0.0/7", "10.*|11.*",
			"\n" + `jvm: entry 0 "10.0.0.0/7": is given "10.*|11.*", which also covers names that begin with the same numbers; write the addresses one by one if such names must use the proxy`},
		{"2001:db8::/32", "",
			"\n" + `jvm: entry 0 "2001:db8::/32": cannot be told, and sends https://[2001:db8::]/ through the proxy; write the addresses that matter, one by one`},
		{"a.com:443", "",
			"\n" + `jvm: entry 0 "a.com:443": cannot be told, and sends www.a.com:443 through the proxy; write "a.com" if every port may be reached directly`},
		{"10.0.0.0/99,a.com", "a.com|*.a.com",
			"\n" + `jvm: entry 0 "10.0.0.0/99": is not given what covers nothing; write it differently: not a network; write an address, a slash and a length that fits it`},
		{"10.0.0.4/31", "10.0.0.4|10.0.0.5", ""},
		{"*", "*", ""},
		{"0.0.0.1", "0.0.0.1", ""}, // beside what is implied
		{"http://u:hunter2@proxy", "",
			"\n" + `jvm: entry 0 "http://redacted": does not read a URL or credentials; write the host alone`},
		{"", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.list, func(t *testing.T) {
			got, findings := noproxy.Merge(noproxy.ParseList(tt.list, "test")).JVM()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("JVM (-want +got):\n%s", diff)
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

// checkJVM holds what a JVM makes of its own list against what Go makes of
// the whole: never more without a finding that says so, less only with one.
func checkJVM(t *testing.T, l noproxy.List, questions []question) {
	t.Helper()
	text, findings := l.JVM()
	also := false
	for _, f := range findings {
		also = also || strings.Contains(f.Does, "also covers")
	}
	for _, q := range questions {
		if !isUsual(q) || q.host == "localhost" {
			continue
		}
		got, want := noproxy.JVM.Bypass(text, q.host, q.port), noproxy.Go.Bypass(l.String(), q.host, q.port)
		if got && !want && !also || !got && want && len(findings) == 0 {
			t.Errorf("%q.JVM() is %q, about %q: got %v, want %v, with %v", l, text, q, got, want, findings)
		}
	}
}

func TestJVMNeverCoversMore(t *testing.T) {
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
		checkJVM(t, l, questions)
	}
}

func FuzzJVM(f *testing.F) {
	for _, v := range loadVectors(f) {
		f.Add(v.NoProxy, v.Host, v.Port)
	}
	f.Fuzz(func(t *testing.T, list, host, port string) {
		if len(list) > 1000 {
			return
		}
		l := noproxy.Merge(noproxy.ParseList(list, "test"))
		checkJVM(t, l, []question{{host, port}, {"www." + host, port}})
	})
}
