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

// TestNoImpliedLoopback asks each question without and with the option.
func TestNoImpliedLoopback(t *testing.T) {
	tests := []struct {
		name, list, host string
		without, with    bool
	}{
		{"localhost not implied", "", "localhost", true, false},
		{"loopback not implied", "", "127.0.0.1", true, false},
		{"IPv6 loopback not implied", "", "::1", true, false},
		{"loopback listed", "127.0.0.0/8,localhost", "127.0.0.1", true, true},
		{"localhost listed", "127.0.0.0/8,localhost", "localhost", true, true},
		{"everything listed", "*", "localhost", true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := noproxy.Parse(tt.list).Bypass(tt.host, "443"); got != tt.without {
				t.Errorf("without: got %v, want %v", got, tt.without)
			}
			rules, err := noproxy.Options{NoImpliedLoopback: true}.Parse(tt.list)
			if err != nil {
				t.Fatal(err)
			}
			if got := rules.Bypass(tt.host, "443"); got != tt.with {
				t.Errorf("with: got %v, want %v", got, tt.with)
			}
		})
	}
}

// TestOptionsWithoutEffect compares Rules with options to those without.
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
		bare, _ := noproxy.Options{NoImpliedLoopback: true}.Parse("localhost,127.0.0.0/8,::1," + list)
		for range 16 {
			q := g.question(items)
			want := plain.Bypass(q.host, q.port)
			if got := zero.Bypass(q.host, q.port); got != want {
				t.Errorf("zero Options, %q, %q, %q: got %v, want %v", list, q.host, q.port, got, want)
			}
			if got := bare.Bypass(q.host, q.port); got != want && !strings.Contains(strings.ToLower(q.host), "localhost") {
				t.Errorf("NoImpliedLoopback, loopback listed, %q, %q, %q: got %v, want %v", list, q.host, q.port, got, want)
			}
			if got := strict.Bypass(q.host, q.port); got != want {
				t.Errorf("strict Options, %q, %q, %q: got %v, want %v", list, q.host, q.port, got, want)
			}
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
	})
}
