package printable_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/internal/printable"
)

func TestText(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		most     int
		want     string
	}{
		{"plain", "v1.2.3 (linux/amd64)", 300, "v1.2.3 (linux/amd64)"},
		{"other scripts", "Größe 集群 кластер क्षेत्र مجموعة", 300, "Größe 集群 кластер क्षेत्र مجموعة"},
		{"the replacement character", "a\ufffdb", 300, "a\ufffdb"},
		{"line ends", "a\nb\r\nc\u0085d\u2028e\u2029f\vg", 300, "a b  c d e f g"},
		{"spaces", "a\tb\u00a0c\u3000d", 300, "a b c d"},
		{"C0 and DEL", "\x00\x1b[31m\x7f", 300, "??[31m?"},
		{"C1", "\u009b31m\u0090q\u009d0;x\u009c", 300, "?31m?q?0;x?"},
		{"bidi", "\u202ea\u202d\u202c\u2066b\u2069\u200e\u200f\u061c", 300, "?a???b????"},
		{"no width", "a\u200bb\u200cc\u200dd\ufeffe\u2060f\u00adg", 300, "a?b?c?d?e?f?g"},
		{"tags and private use", "a\U000e0001\U000e0041\ue000\U0010fffd", 300, "a????"},
		{"blank letters", "\u3164a\u115f\u1160b\uffa0c\u034fd\ufffce\u2800f\u17b4\u17b5", 300, "?a??b?c?d?e?f??"},
		{"variations and combining marks", "\u2764\ufe0f e\u0301 \u1112\u1161\u11ab", 300, "\u2764\ufe0f e\u0301 \u1112\u1161\u11ab"},
		{"marks on nothing", "\u0301a \u0301\u0302b\u200b\u0301", 300, "?a ??b??"},
		{"too many marks", "a" + strings.Repeat("\u0301", 10) + "b", 300, "a" + strings.Repeat("\u0301", 8) + "??b"},
		{"no UTF-8", "a\xff\x9b\xc2", 300, "a???"},
		{"as long as may be", "abcde", 5, "abcde"},
		{"longer", "abcdef", 5, "ab..."},
		{"at a rune's border", "aéééé", 6, "aé..."},
		{"long until it is clean", "a\u202e\u202e\u202e", 4, "a???"},
		{"no room for the mark", "abcd", 2, "ab"},
		{"no room", "abcd", 0, ""},
		{"less than none", "abcd", -1, ""},
		{"empty", "", 300, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := printable.Text(tt.in, tt.most); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a\nb", "\u009b\u202e\xff", "ééé", strings.Repeat("\U000e0041", 99)} {
		f.Add(s, 7)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		most %= 1 << 10
		got := printable.Text(s, most)
		switch {
		case len(got) > max(most, 0):
			t.Errorf("got %d bytes, want %d at most", len(got), most)
		case !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }):
			t.Errorf("got %q, which does not print", got)
		case printable.Text(got, most) != got:
			t.Errorf("got %q, then %q", got, printable.Text(got, most))
		}
		if back, err := strconv.Unquote(printable.Quote(s)); printable.Quote(s) != s && (err != nil || back != s) {
			t.Errorf("got %q back from the quotes, %v", back, err)
		}
		text, _ := json.Marshal([]string{s, s})
		var want, back []string
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		clean := printable.JSON(text)
		if err := json.Unmarshal(clean, &back); err != nil || !cmp.Equal(back, want) || printable.Quote(string(clean)) != string(clean) {
			t.Errorf("got %q of %q, %v", clean, text, err)
		}
	})
}

func TestLines(t *testing.T) {
	if got, want := printable.Lines("a\x1b\n\u009bb\n\nc\n", 300), "a?\n?b\n\nc"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := printable.Lines("abc\ndef", 5), "abc\nd"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"é 集群":      "é 集群",
		"é\n":       `"é\n"`,
		"a\u3164é":  `"a\u3164\u00e9"`,
		"\u0301a":   `"\u0301a"`,
		"a\u0301":   "a\u0301",
		"a\xffb\"c": `"a\xffb\"c"`,
	} {
		if got := printable.Quote(in); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	const in, want = "{\n\t\"a\": \"\u009b\u202e\x7f\U000e0041é\xff\"\n}\n", "{\n\t\"a\": \"\\u009b\\u202e\\u007f\\udb40\\udc41é\\ufffd\"\n}\n"
	if got := string(printable.JSON([]byte(in))); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
