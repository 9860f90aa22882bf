package noproxy_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/noproxy"
)

func TestParseList(t *testing.T) {
	got := noproxy.ParseList(" a.com,, b c,\t,*", "installation")
	want := noproxy.List{{Text: "a.com", From: "installation"}, {Text: "b c", From: "installation"}, {Text: "*", From: "installation"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ParseList (-want +got):\n%s", diff)
	}
	if got := got.String(); got != "a.com,b c,*" {
		t.Errorf("String: got %q", got)
	}
	if got := noproxy.List(nil).String(); got != "" {
		t.Errorf("nil: got %q", got)
	}
}

func TestMerge(t *testing.T) {
	tests := []struct {
		name, list, want string
	}{
		{"twice", "a.com,b.com,a.com", "a.com,b.com"},
		{"twice in another spelling", "A.com,a.com", "A.com"},
		{"two forms of the same", "*.a.com,.a.com", "*.a.com"},
		{"below a name", "www.a.com,a.com,.b.a.com", "a.com"},
		{"not at a label", "xa.com,a.com", "xa.com,a.com"},
		{"apex is not below", ".a.com,a.com", "a.com"},
		{"only below, and the apex of something below", ".a.com,b.a.com", ".a.com"},
		{"trailing dots are other names", "a.com,a.com.", "a.com,a.com."},
		{"a lone dot", ".,a.com.,b.com", ".,b.com"},
		{"network in a network", "10.1.0.0/16,10.0.0.0/8", "10.0.0.0/8"},
		{"address in a network", "10.0.0.0/8,10.1.2.3", "10.0.0.0/8"},
		{"same network", "10.0.0.0/8,10.255.0.0/8", "10.0.0.0/8"},
		{"beside a network", "10.0.0.0/8,11.0.0.0", "10.0.0.0/8,11.0.0.0"},
		{"two halves stay", "10.0.0.0/9,10.128.0.0/9", "10.0.0.0/9,10.128.0.0/9"},
		{"IPv6", "2001:db8::1,2001:db8::/32", "2001:db8::/32"},
		{"families are apart", "::/0,10.0.0.1", "::/0,10.0.0.1"},
		{"mapped", "::ffff:10.0.0.1,10.0.0.1", "::ffff:10.0.0.1"},
		{"port in any port", "a.com:443,a.com", "a.com"},
		{"any port is not in a port", "a.com:443,www.a.com", "a.com:443,www.a.com"},
		{"same port", "a.com:443,www.a.com:443,www.a.com:80", "a.com:443,www.a.com:80"},
		{"address and port", "10.0.0.1:443,10.0.0.0/8", "10.0.0.0/8"},
		{"asterisk hides nothing", "*,a.com,*", "*,a.com"},
		{"what covers nothing stays", "10.0.0.0/99,a b,10.0.0.0/99", "10.0.0.0/99,a b"},
		{"chain", "c.b.a,b.a,a", "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := noproxy.Merge(noproxy.ParseList(tt.list, "x")).String(); got != tt.want {
				t.Errorf("Merge(%q): got %q, want %q", tt.list, got, tt.want)
			}
		})
	}
}

func TestMergeProvenance(t *testing.T) {
	one := noproxy.List{{Text: "10.1.2.3", From: "one", Within: "stale"}, {Text: "0.0.0.0/0", From: "one", Skipped: "too much"}}
	two := noproxy.List{{Text: "10.0.0.0/8", From: "two"}, {Text: "10.1.0.0/16", From: "two"}}
	got := noproxy.Merge(one, nil, two)
	want := noproxy.List{
		{Text: "10.1.2.3", From: "one", Within: "10.0.0.0/8"},
		{Text: "0.0.0.0/0", From: "one", Skipped: "too much"},
		{Text: "10.0.0.0/8", From: "two"},
		{Text: "10.1.0.0/16", From: "two", Within: "10.0.0.0/8"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Merge (-want +got):\n%s", diff)
	}
	chain := noproxy.Merge(noproxy.ParseList("c.b.a,b.a,a", "three"))
	if chain[0].Within != "a" || chain[1].Within != "a" {
		t.Errorf("chain: got %+v, want both within the entry that is written", chain)
	}
	if one[0].Within != "stale" {
		t.Error("Merge wrote to its argument")
	}
	if got := noproxy.Merge(); len(got) != 0 {
		t.Errorf("of nothing: got %v", got)
	}
}

// checkMerge holds the merged list against its parts, which a host is reached
// directly by if one of them says so.
func checkMerge(t *testing.T, one, two string, questions []question) (hidden int) {
	t.Helper()
	merged := noproxy.Merge(noproxy.ParseList(one, "one"), noproxy.ParseList(two, "two"))
	text := merged.String()
	rules, first, second := noproxy.Parse(text), noproxy.Parse(one), noproxy.Parse(two)
	for _, q := range questions {
		want := first.Bypass(q.host, q.port) || second.Bypass(q.host, q.port)
		if got := rules.Bypass(q.host, q.port); got != want {
			t.Errorf("Merge(%q, %q) is %q, about %q: got %v, want %v", one, two, text, q, got, want)
		}
	}
	for _, e := range merged {
		if e.Within != "" {
			hidden++
		}
	}
	if again := noproxy.Merge(merged).String(); again != text {
		t.Errorf("Merge(%q, %q): got %q, then %q", one, two, text, again)
	}
	return hidden
}

func TestMergeKeepsMeaning(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(13, 14))}
	hidden := 0
	for range 3000 {
		items := g.items()
		if len(items) > 20 {
			continue
		}
		items = append(items, g.nearItems(items)...)
		half := g.IntN(len(items) + 1)
		questions := make([]question, 16)
		for i := range questions {
			questions[i] = g.question(items)
		}
		hidden += checkMerge(t, strings.Join(items[:half], ","), strings.Join(items[half:], ","), questions)
	}
	if hidden < 1500 {
		t.Errorf("got %d entries within others: too few to mean anything", hidden)
	}
}

// nearItems returns items that cover a part of what items cover, or the same.
func (g generator) nearItems(items []string) []string {
	var near []string
	for range len(items) {
		q := g.question(items)
		near = append(near, pick(g, q.host, "."+q.host, q.host+":"+q.port))
	}
	return near
}

func FuzzMerge(f *testing.F) {
	for i, v := range loadVectors(f) {
		f.Add(v.NoProxy, v.Host+","+v.NoProxy, v.Host, v.Port, uint64(i))
	}
	f.Fuzz(func(t *testing.T, one, two, host, port string, seed uint64) {
		if len(one)+len(two) > 2000 {
			return
		}
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		items := append(strings.Split(one, ","), strings.Split(two, ",")...)
		questions := []question{{host, port}}
		for range 8 {
			questions = append(questions, g.question(items))
		}
		checkMerge(t, one, two, questions)
	})
}
