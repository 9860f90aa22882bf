package noproxy_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/noproxy"
)

func TestExplain(t *testing.T) {
	tests := []struct {
		name, list, host, port string
		opts                   noproxy.Options
		want                   string
	}{
		{"name", "a.com,example.com", "example.com", "443", noproxy.Options{},
			`example.com:443: direct: entry 1 "example.com": the name or one below it`},
		{"first of several", ".example.com,example.com", "www.example.com", "443", noproxy.Options{},
			`www.example.com:443: direct: entry 0 ".example.com": a name below it`},
		{"empty items count", ",, example.com ", "example.com", "", noproxy.Options{},
			`example.com: direct: entry 2 "example.com": the name or one below it`},
		{"port", "example.com:8443", "example.com", "8443", noproxy.Options{},
			`example.com:8443: direct: entry 0 "example.com:8443": the name or one below it, on port 8443`},
		{"address", "2001:db8::1", "2001:db8::1", "443", noproxy.Options{},
			`[2001:db8::1]:443: direct: entry 0 "2001:db8::1": the address`},
		{"network", "10.0.0.0/8", "10.1.2.3", "443", noproxy.Options{},
			`10.1.2.3:443: direct: entry 0 "10.0.0.0/8": an address of the network`},
		{"everything", "a.com,*", "example.com", "443", noproxy.Options{},
			`example.com:443: direct: entry 1 "*": everything`},
		{"names that end in a dot", ".", "example.com.", "443", noproxy.Options{},
			`example.com.:443: direct: entry 0 ".": a name that ends in a dot`},
		{"implied before the list", "*,localhost", "localhost", "443", noproxy.Options{},
			`localhost:443: direct: localhost and loopback addresses are never proxied`},
		{"implied address", "", "127.0.0.2", "443", noproxy.Options{},
			`127.0.0.2:443: direct: localhost and loopback addresses are never proxied`},
		{"not implied", "127.0.0.1", "127.0.0.1", "443", noproxy.Options{NoImpliedLoopback: true},
			`127.0.0.1:443: direct: entry 0 "127.0.0.1": the address`},

		{"no entry", "example.com", "example.org", "443", noproxy.Options{},
			`example.org:443: through the proxy: no entry covers it`},
		{"other port", "example.com:80", "example.com", "443", noproxy.Options{},
			`example.com:443: through the proxy: no entry covers it; entry 0 "example.com:80" is for port 80 only`},
		{"apex", ".example.com", "example.com", "443", noproxy.Options{},
			`example.com:443: through the proxy: no entry covers it; entry 0 ".example.com" would, but covers only the names below it`},
		{"trailing dot", ".svc", "a.svc.", "443", noproxy.Options{},
			`a.svc.:443: through the proxy: no entry covers it; entry 0 ".svc" would, but for the dot at the end`},
		{"implied but for the dot", "a.com", "localhost.", "443", noproxy.Options{},
			`localhost.:443: through the proxy: no entry covers it`},
		{"brackets", "[2001:db8::1]", "2001:db8::1", "443", noproxy.Options{},
			`[2001:db8::1]:443: through the proxy: no entry covers it; entry 0 "[2001:db8::1]" would, but brackets need a port`},
		{"network and port", "10.0.0.0/8:443", "10.0.0.1", "443", noproxy.Options{},
			`10.0.0.1:443: through the proxy: no entry covers it; entry 0 "10.0.0.0/8:443" would, but a network or an asterisk cannot have a port`},
		{"everything and port", "*:443", "example.com", "443", noproxy.Options{},
			`example.com:443: through the proxy: no entry covers it; entry 0 "*:443" would, but a network or an asterisk cannot have a port`},
		{"network in brackets and port", "[2001:db8::/32]:443", "2001:db8::1", "443", noproxy.Options{},
			`[2001:db8::1]:443: through the proxy: no entry covers it; entry 0 "[2001:db8::/32]:443" would, but a network or an asterisk cannot have a port`},
		{"network and other port", "10.0.0.0/8:443", "10.0.0.1", "80", noproxy.Options{},
			`10.0.0.1:80: through the proxy: no entry covers it`},
		{"dot in the entry, another script's in the host", "b\u00fccher.example", "b\u00fccher.example\u3002", "443", noproxy.Options{},
			"b\u00fccher.example\u3002:443: through the proxy: no entry covers it; entry 0 \"b\u00fccher.example\" would, but for the dot at the end"},
		{"white space", "a.com b.com", "b.com", "443", noproxy.Options{},
			`b.com:443: through the proxy: no entry covers it; entry 0 "a.com b.com" would, but white space does not separate items`},
		{"no credentials", "http://u:a,x:hunter2,y@h,example.com:80", "x", "80", noproxy.Options{},
			`x:80: through the proxy: no entry covers it`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := tt.opts.Parse(tt.list)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, rules.Explain(tt.host, tt.port).String()); diff != "" {
				t.Errorf("Explain (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExplainNil(t *testing.T) {
	var rules *noproxy.Rules
	if e := rules.Explain("127.0.0.1", "80"); !e.Bypass || e.Index != -1 {
		t.Errorf("loopback: got %+v, want an implied bypass", e)
	}
	if e := rules.Explain("10.0.0.1", "80"); e.Bypass || e.Index != -1 {
		t.Errorf("other: got %+v, want none", e)
	}
}

// checkExplain holds Explain against Bypass, and the item that it names against
// a list of that item alone.
func checkExplain(t *testing.T, o noproxy.Options, list string, q question) noproxy.Explanation {
	t.Helper()
	rules, _ := o.Parse(list)
	e := rules.Explain(q.host, q.port)
	if want := rules.Bypass(q.host, q.port); e.Bypass != want {
		t.Errorf("%+v.Parse(%q).Explain(%q, %q): got %v, want %v", o, list, q.host, q.port, e.Bypass, want)
	}
	if (e.Index >= 0 || e.Text != "") && !e.Bypass || e.Reason == "" {
		t.Errorf("%+v.Parse(%q).Explain(%q, %q): got %+v", o, list, q.host, q.port, e)
	}
	if e.Index >= 0 && !strings.Contains(e.Text, "redacted") {
		alone, _ := o.Parse(e.Text)
		if !alone.Bypass(q.host, q.port) {
			t.Errorf("%+v.Parse(%q).Explain(%q, %q): got %q, which alone does not cover it", o, list, q.host, q.port, e.Text)
		}
	}
	return e
}

// options returns the options whose bits are set.
func options(bits uint8) noproxy.Options {
	return noproxy.Options{NoImpliedLoopback: bits&1 != 0, Strict: bits&2 != 0}
}

func TestExplainAgreesWithBypass(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(3, 4))}
	listed, implied, none := 0, 0, 0
	for range 2000 {
		items := g.items()
		if len(items) > 20 {
			continue
		}
		list, o := strings.Join(items, ","), options(uint8(g.Uint32()))
		if g.IntN(2) == 0 {
			o = noproxy.Options{}
		}
		for range 8 {
			switch e := checkExplain(t, o, list, g.question(items)); {
			case e.Index >= 0:
				listed++
			case e.Bypass:
				implied++
			default:
				none++
			}
		}
	}
	if listed < 500 || implied < 25 || none < 500 {
		t.Errorf("got %d listed, %d implied, %d not covered: too few to mean anything", listed, implied, none)
	}
}

func FuzzExplain(f *testing.F) {
	for i, v := range loadVectors(f) {
		f.Add(v.NoProxy, v.Host, v.Port, uint8(i))
	}
	f.Fuzz(func(t *testing.T, list, host, port string, bits uint8) {
		checkExplain(t, noproxy.Options{}, list, question{host, port})
		checkExplain(t, options(bits), list, question{host, port})
	})
}
