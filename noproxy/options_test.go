package noproxy_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/noproxy"
)

// TestOptions asks each question without and with one extension.
func TestOptions(t *testing.T) {
	fold := noproxy.Options{FoldTrailingDot: true}
	brackets := noproxy.Options{BracketsWithoutPort: true}
	network := noproxy.Options{NetworkPort: true}
	apex := noproxy.Options{ApexOfDot: true}
	space := noproxy.Options{SpaceSeparates: true}
	names := noproxy.Options{LocalhostNames: true}
	bare := noproxy.Options{NoImpliedLoopback: true}
	tests := []struct {
		name             string
		opts             noproxy.Options
		list, host, port string
		without, with    bool
	}{
		{"fold host", fold, "example.com", "www.example.com.", "443", false, true},
		{"fold host in upper case", fold, "example.com", "WWW.EXAMPLE.COM.", "443", false, true},
		{"fold item", fold, ".cluster.local.", "a.cluster.local", "443", false, true},
		{"fold item with a port", fold, "example.com.:443", "example.com", "443", false, true},
		{"fold both", fold, "example.com.", "example.com.", "443", true, true},
		{"fold one dot only", fold, "example.com", "example.com..", "443", false, false},
		{"fold a dot of another script", fold, "bücher.example", "bücher.example。", "443", false, true},
		{"fold address", fold, "10.0.0.1", "10.0.0.1.", "443", false, true},
		{"fold localhost", fold, "", "localhost.", "443", false, true},
		{"fold leaves a lone dot", fold, ".", "example.com", "443", false, false},
		{"fold keeps a lone dot", fold, ".", "example..", "443", true, true},
		{"fold makes a dot dead", fold, ".", "example.com.", "443", true, false},

		{"brackets", brackets, "[2001:db8::1]", "2001:db8::1", "8443", false, true},
		{"brackets, other address", brackets, "[2001:db8::1]", "2001:db8::2", "8443", false, false},
		{"brackets and port", brackets, "[2001:db8::1]:443", "2001:db8::1", "80", false, false},
		{"empty brackets", brackets, "[]", "example.com", "443", false, false},

		{"network port", network, "10.0.0.0/8:443", "10.1.2.3", "443", false, true},
		{"network port, other port", network, "10.0.0.0/8:443", "10.1.2.3", "80", false, false},
		{"network port, other address", network, "10.0.0.0/8:443", "11.1.2.3", "443", false, false},
		{"two networks of a port", network, "10.0.0.0/8:443,11.0.0.0/8:443", "11.1.2.3", "443", false, true},
		{"network of one address", network, "10.0.0.1/32:443", "10.0.0.1", "443", false, true},
		{"IPv6 network port", network, "[2001:db8::/32]:443", "2001:db8::1", "443", false, true},
		{"IPv6 network port without brackets", network, "2001:DB8::/32:443", "2001:db8::1", "443", false, true},
		{"IPv6 without a port", network, "2001:db8::/32", "2001:db8::1", "443", true, true},
		{"asterisk and port", network, "*:443", "example.com", "443", false, true},
		{"asterisk and port, address", network, "*:443", "10.0.0.1", "443", false, true},
		{"asterisk and other port", network, "*:443", "example.com", "80", false, false},
		{"network and empty port", network, "10.0.0.0/8:", "10.0.0.1", "443", false, false},

		{"apex", apex, ".example.com", "example.com", "443", false, true},
		{"apex, below", apex, ".example.com", "www.example.com", "443", true, true},
		{"apex with a port", apex, " .example.com:443", "example.com", "443", false, true},
		{"apex of an asterisk", apex, "*.example.com", "example.com", "443", false, false},

		{"space", space, "a.com example.com", "example.com", "443", false, true},
		{"newlines", space, "a.com\nexample.com\n", "a.com", "443", false, true},
		{"Unicode space", space, "a.com\u3000example.com", "example.com", "443", false, true},
		{"space and comma", space, "a.com , example.com", "example.com", "443", true, true},
		{"lone asterisk between spaces", space, "a.com * b.com", "example.com", "443", false, true},

		{"below localhost", names, "", "a.localhost", "443", false, true},
		{"below localhost, upper case", names, "", "A.LocalHost", "443", false, true},
		{"not localhost", names, "", "alocalhost", "443", false, false},

		{"localhost not implied", bare, "", "localhost", "443", true, false},
		{"loopback not implied", bare, "", "127.0.0.1", "443", true, false},
		{"IPv6 loopback not implied", bare, "", "::1", "443", true, false},
		{"loopback listed", bare, "127.0.0.0/8,localhost", "127.0.0.1", "443", true, true},
		{"localhost listed", bare, "127.0.0.0/8,localhost", "localhost", "443", true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := noproxy.Parse(tt.list).Bypass(tt.host, tt.port); got != tt.without {
				t.Errorf("without: got %v, want %v", got, tt.without)
			}
			rules, err := tt.opts.Parse(tt.list)
			if err != nil {
				t.Fatal(err)
			}
			if got := rules.Bypass(tt.host, tt.port); got != tt.with {
				t.Errorf("with: got %v, want %v", got, tt.with)
			}
		})
	}
	names.NoImpliedLoopback = true
	if rules, _ := names.Parse(""); rules.Bypass("a.localhost", "80") {
		t.Error("LocalhostNames with NoImpliedLoopback: got a bypass, want none")
	}
}

// TestOptionsWithoutEffect compares the code for Rules with options to the one
// for Rules without.
func TestOptionsWithoutEffect(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(5, 6))}
	for range 4000 {
		items := g.items()
		list := strings.Join(items, ",")
		plain := noproxy.Parse(list)
		zero, err := noproxy.Options{}.Parse(list)
		if err != nil {
			t.Fatalf("Parse(%q): %v", list, err)
		}
		strict, _ := noproxy.Options{Strict: true}.Parse(list)
		names, _ := noproxy.Options{LocalhostNames: true}.Parse(list)
		for range 16 {
			q := g.question(items)
			want := plain.Bypass(q.host, q.port)
			if got := zero.Bypass(q.host, q.port); got != want {
				t.Errorf("zero Options, %q, %q, %q: got %v, want %v", list, q.host, q.port, got, want)
			}
			if got := names.Bypass(q.host, q.port); got != want && !strings.Contains(strings.ToLower(q.host), "localhost") {
				t.Errorf("Options with LocalhostNames, %q, %q, %q: got %v, want %v", list, q.host, q.port, got, want)
			}
			if got := strict.Bypass(q.host, q.port); got != want {
				t.Errorf("strict Options, %q, %q, %q: got %v, want %v", list, q.host, q.port, got, want)
			}
		}
	}
}

func TestOptionsDoNotAllocate(t *testing.T) {
	list := "example.com.,10.0.0.0/8:443,*:8443 [2001:db8::1] .svc"
	rules, err := options(0x7f).Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"www.example.com.", "WWW.EXAMPLE.ORG", "10.0.0.1", "2001:db8::1", "a.localhost"} {
		if n := testing.AllocsPerRun(100, func() { rules.Bypass(host, "443") }); n != 0 {
			t.Errorf("Bypass(%q): got %v allocations, want 0", host, n)
		}
	}
}

// reasons are what strict parsing says about each kind of item.
var reasons = map[string]string{
	"": "empty", "slash": "not a network; write an address, a slash and a length that fits it",
	"network port": "a network cannot have a port; write the network alone",
	"space":        "white space does not separate items; write a comma",
	"separator":    "only commas separate items", "host": "a port without a host",
	"port":     "the port is not a number from 1 to 65535 without leading zeros",
	"brackets": "brackets need a port; write the address without them",
	"zone":     "an address with a zone; write it without the zone",
	"colon":    "neither an IPv6 address nor a host and a port",
	"asterisk": "an asterisk stands alone or before a dot at the beginning",
	"label":    "an empty label", "number": "not an address, and no name ends in a number",
	"long label": "a label longer than 63 bytes", "long": "longer than a name can be",
	"idna": "not an internationalised name", "secret": "a URL or credentials; write the host alone",
}

func TestStrictErrors(t *testing.T) {
	tests := map[string][]string{
		"slash":        {"10.0.0.0/33", "2001:db8::/129", "10/8", "10.0.0.0/", "/8", "[2001:db8::]/32", "example.com/", "10.0.0.0/+8"},
		"network port": {"10.0.0.0/8:443", "[2001:db8::/32]:443", "2001:db8::/32:443"},
		"space":        {"a.com b.com", "a.com\tb.com", "10.0.0.0/ 8"},
		"separator":    {"a.com|b.com", "a.com;b.com"},
		"host":         {":443", "[]:443", ":"},
		"port":         {"example.com:080", "example.com:https", "10.0.0.1:0", "example.com:65536", "example.com:-1", "[2001:db8::1]:+1"},
		"brackets":     {"[2001:db8::1]", "[example.com]", "[*]", "[]"},
		"zone":         {"fe80::1%eth0", "[fe80::1%eth0]:80"},
		"colon":        {"a:b:c", "2001:db8::1::2", "[2001:db8::1"},
		"asterisk":     {"*example.com", "www.*.com", "*:443", "**", "*.*", "10.0.*", ".*.com"},
		"label":        {"..example.com", "*..example.com", "a..com", ".."},
		"number":       {"192.168.001.001", "10.0.0", "256.0.0.1", "1", "example.1", ".0.0.1", "10.0.0.1."},
		"long label":   {strings.Repeat("a", 64) + ".com"},
		"long":         {strings.Repeat("abcdefg.", 32) + "com", strings.Repeat("abcdefg.", 31) + "abcdef", "." + strings.Repeat("abcdefg.", 31) + "abcdef."},
		"idna":         {"a\u2488.com", "a\xff.com", "\u077c._", "b\u00fccher.a_b.example"},
		"secret":       {"user@example.com", "http://example.com", "://", "ftp://u:p@example.com:21/x"},
	}
	for name, items := range tests {
		for _, item := range items {
			t.Run(name+"/"+item, func(t *testing.T) {
				rules, err := noproxy.Options{Strict: true}.Parse("a.example," + item + ",10.0.0.1")
				var got *noproxy.EntryError
				if !errors.As(err, &got) {
					t.Fatalf("got error %v, want an EntryError", err)
				}
				if got.Index != 1 || got.Reason != reasons[name] {
					t.Errorf("got %+v, want index 1, reason %q", got, reasons[name])
				}
				if name != "secret" && got.Text != item {
					t.Errorf("text: got %q, want %q", got.Text, item)
				}
				if !rules.Bypass("a.example", "1") || !rules.Bypass("10.0.0.1", "1") {
					t.Error("the valid items are not in the Rules")
				}
			})
		}
	}
}

func TestStrictAccepts(t *testing.T) {
	items := []string{"*", "localhost", "svc", ".svc", "*.svc", "cluster.local.", ".", "*.", "_dmarc.example", "a-b.c", "bücher.example",
		"XN--A.com", "10.0.0.1", "10.0.0.0/08", "0.0.0.0/0", "::/0", "::ffff:0:0/96", "2001:db8::1", "[2001:db8::1]:443", "[2001:db8::1]:",
		"[10.0.0.1]:1", "example.com:65535", "example.com:", "3com", strings.Repeat("a", 63), strings.Repeat("abcdefg.", 31) + "abcde", strings.Repeat("abcdefg.", 31) + "abcde.", " a.com\t"}
	for _, item := range items {
		if _, err := (noproxy.Options{Strict: true}).Parse(item); err != nil {
			t.Errorf("Parse(%q): got %v, want no error", item, err)
		}
	}
	for _, list := range []string{"", " ", "\t\n"} {
		if _, err := (noproxy.Options{Strict: true}).Parse(list); err != nil {
			t.Errorf("Parse(%q): got %v, want no error", list, err)
		}
	}
}

func TestStrictFollowsOptions(t *testing.T) {
	all := options(0xff)
	if _, err := all.Parse("[2001:db8::1] 10.0.0.0/8:443,*:443\nexample.com."); err != nil {
		t.Errorf("got %v, want no error: every item covers something with these options", err)
	}
	_, err := all.Parse("a.com b.com,, c..d ")
	want := "noproxy: entry 2 \"\": empty\nnoproxy: entry 3 \"c..d\": an empty label"
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("items between spaces and commas (-want +got):\n%s", diff)
	}
	if _, err := all.Parse("."); err == nil {
		t.Error(`got no error for ".", which covers nothing where trailing dots are folded`)
	}
}

func TestStrictErrorText(t *testing.T) {
	_, err := noproxy.Options{Strict: true}.Parse("a b,example.com,,10.0.0.0/40")
	want := strings.Join([]string{
		`noproxy: entry 0 "a b": white space does not separate items; write a comma`,
		`noproxy: entry 2 "": empty`,
		`noproxy: entry 3 "10.0.0.0/40": not a network; write an address, a slash and a length that fits it`,
	}, "\n")
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestNoCredentials(t *testing.T) {
	const secret = "hunter2"
	lists := []string{
		"http://user:" + secret + "@proxy:3128", "user:" + secret + "@proxy", "HTTPS://" + secret + "@proxy/",
		"http://user:a," + secret + ",b!c@proxy,x!y", "http://user:a, " + secret + "!,b@proxy", secret + "://a:" + secret + "@h",
		"http://host/?token=" + secret, "http://u:p@" + secret + "/@x", "http://u:" + secret + "!,http://x@y",
	}
	for _, list := range lists {
		rules, err := noproxy.Options{Strict: true}.Parse(list)
		shown := fmt.Sprintf("%v %+v %#v", err, err, err)
		var entry *noproxy.EntryError
		if errors.As(err, &entry) {
			shown += fmt.Sprintf("%#v", *entry)
		} else {
			t.Errorf("Parse(%q): got error %v, want an EntryError", list, err)
		}
		for _, q := range []question{{"example.com", "80"}, {"y", "80"}} {
			shown += fmt.Sprintf("%+v", rules.Explain(q.host, q.port))
		}
		if strings.Contains(shown, secret) {
			t.Errorf("Parse(%q): the password is in %q", list, shown)
		}
	}
	// Without user info to end it, a URL hides no more than itself.
	_, err := noproxy.Options{Strict: true}.Parse("http://example.com,a b")
	if err == nil || !strings.Contains(err.Error(), `"a b"`) {
		t.Errorf("got %v, want the second item in it", err)
	}
}

// witness returns a host and port that a valid item covers.
func witness(item string) question {
	item = strings.ToLower(strings.TrimSpace(item))
	g := generator{rand.New(rand.NewPCG(1, 1))}
	q := g.at(item)
	if q.port == "" {
		q.port = "443"
	}
	return q
}

// checkStrict holds the errors of a list against what its items cover: an item
// without an error covers its witness, one with an error none of the hosts.
func checkStrict(t *testing.T, list string, hosts []question) (valid, invalid int) {
	t.Helper()
	_, err := noproxy.Options{Strict: true}.Parse(list)
	bad := make(map[int]bool)
	for _, e := range unjoin(err) {
		entry, ok := e.(*noproxy.EntryError)
		if !ok || entry.Reason == "" || bad[entry.Index] {
			t.Fatalf("Parse(%q): got %#v, want one EntryError for an item", list, e)
		}
		bad[entry.Index] = true
	}
	if strings.TrimSpace(list) == "" {
		return 0, 0
	}
	for i, item := range strings.Split(list, ",") {
		rules, _ := noproxy.Options{NoImpliedLoopback: true}.Parse(item)
		if !bad[i] {
			valid++
			if q := witness(item); !rules.Bypass(q.host, q.port) {
				t.Errorf("Parse(%q): no error for item %d %q, which does not cover %q", list, i, item, q)
			}
			continue
		}
		invalid++
		for _, q := range hosts {
			if rules.Bypass(q.host, q.port) {
				t.Errorf("Parse(%q): an error for item %d %q, which covers %q", list, i, item, q)
			}
		}
	}
	return valid, invalid
}

func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return nil
}

func TestStrictMeansCoversNothing(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(7, 8))}
	valid, invalid := 0, 0
	for range 3000 {
		items := g.items()
		var hosts []question
		for range 16 {
			if q := g.question(items); isHost(q) {
				hosts = append(hosts, q)
			}
		}
		v, i := checkStrict(t, strings.Join(items, ","), hosts)
		valid, invalid = valid+v, invalid+i
	}
	if valid < 5000 || invalid < 1000 {
		t.Errorf("got %d valid and %d invalid items: too few to mean anything", valid, invalid)
	}
}

func FuzzStrict(f *testing.F) {
	for _, v := range loadVectors(f) {
		f.Add(v.NoProxy, v.Host, v.Port)
	}
	f.Fuzz(func(t *testing.T, list, host, port string) {
		var hosts []question
		if q := (question{host, port}); isHost(q) {
			hosts = append(hosts, q)
		}
		checkStrict(t, list, hosts)
		options(0xff).Parse(list)
	})
}
