package quote_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/causewayproject/causeway/internal/quote"
	"github.com/causewayproject/causeway/internal/yamledit"
)

// carried are texts that every encoder but EnvLine carries.
var carried = []string{
	"", "a", "--alias=[2001:db8::1]:6443=127.0.0.1:6443", `\`, `\\`, `"`, `'`, `''`, "'\\''", `\"`, `\n`, "%", "%%", "%n\\%h", "$", "$$", "$X", "${X}", "$(id)", "`id`",
	";", "a ; b", "#", " ", "a  b ", "~", "-n", "@/bin/sh", "!x", "*", "{a,b}", "é", "日本", "null", "123", "1e3", "0x1f", "true", "off", "yes", "1:30", "- x: y", "&a", "*a", "|", ">",
}

var refused = []string{
	"a\nExecStart=/bin/sh", "a\rExecStart=/bin/sh", "a\r\nb", "a\x00b", "a\tb", "a\x1b[2J", "a\x7fb", "a\u0085b", "a\u009b2J", "a\u2028b", "a\u2029b",
	"a\x85b", "a\xff", "a\u202eb", "a\u2066b", "a\u200fb", "\\\n", "a\vb", "a\fb",
}

// syntaxes are the encoders, with a reader of each: systemd's and the shell's by their
// manuals, YAML's by a library. Real programs read the same texts in internal/e2e.
var syntaxes = []struct {
	name  string
	write func(string) (string, error)
	read  func(string) (string, error)
}{
	{"systemd argument", quote.SystemdArgument, func(s string) (string, error) { return readUnit("ExecStart=/bin/x " + s + " last\n") }},
	{"systemd assignment", quote.SystemdAssignment, func(s string) (string, error) { return readUnit("Environment=" + s + "\n") }},
	{"shell", quote.Shell, readShell},
	{"yaml", yamledit.Quote, func(s string) (string, error) {
		var got map[string][]any
		err := yaml.Unmarshal([]byte("a:\n- "+s+"\n"), &got)
		if err != nil || len(got["a"]) != 1 {
			return "", errors.New("not one item")
		}
		text, ok := got["a"][0].(string)
		if !ok {
			err = errors.New("no string")
		}
		return text, err
	}},
}

func TestSyntaxes(t *testing.T) {
	for _, s := range syntaxes {
		for _, text := range carried {
			word, err := s.write(text)
			if err != nil {
				t.Errorf("%s: %q: %v", s.name, text, err)
			} else if got, err := s.read(word); got != text || err != nil {
				t.Errorf("%s: got %q, %v by %s; want %q", s.name, got, err, word, text)
			}
		}
		for _, text := range refused {
			if word, err := s.write(text); err == nil || word != "" || strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q: got %s, %v; want an error without the text", s.name, text, word, err)
			}
		}
	}
}

func FuzzSyntaxes(f *testing.F) {
	for _, text := range slices.Concat(carried, refused) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range syntaxes {
			word, err := s.write(text)
			if (err == nil) != (quote.Check(text) == nil) {
				t.Errorf("%s: %q: got %v, and Check says %v", s.name, text, err, quote.Check(text))
			} else if err != nil {
				continue
			}
			if got, err := s.read(word); got != text || err != nil {
				t.Errorf("%s: got %q, %v by %s; want %q", s.name, got, err, word, text)
			}
		}
	})
}

func TestEnvLine(t *testing.T) {
	for _, text := range []string{"", "http://u:p%40ss@proxy:3128", "*.example.com,10.0.0.0/8,[2001:db8::1]:443", "bücher.test", "a=b"} {
		if got, err := quote.EnvLine("X", text); got != "X="+text || err != nil {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	for _, text := range append(slices.Clone(refused), "a b", "$(id)", "`id`", "a;b", "a#b", "a'b", `a"b`, `a\b`, "~", "a&b", "a|b", "a!b", "a{b", "a(b", "a<b", "a\u00adb", "a\u200bb", "a\u00a0b") {
		if got, err := quote.EnvLine("X", text); err == nil {
			t.Errorf("%q: got %q, want an error", text, got)
		}
	}
}

func TestCheckImage(t *testing.T) {
	for text, want := range map[string]bool{
		"a": true, "causeway-agent:latest": true, "REGISTRY:5000/a/b_c.d:V1_.-": true, "[2001:db8::1]:5000/a": true, "r.test/a:1@sha256:0aF": true,
		"": false, "$(HOME)": false, "${IMAGE}": false, "https://r.test/a": false, "r.test/": false, "a:": false, "a@sha256": false, "-a": false, "r.test/A": false, "a b": false,
	} {
		if err := quote.CheckImage(text); (err == nil) != want {
			t.Errorf("%q: got %v, want it to be good: %t", text, err, want)
		}
	}
}

func TestContainer(t *testing.T) {
	if got := quote.Container("a$(X)$$b$"); got != "a$$(X)$$$$b$$" {
		t.Errorf("got %s", got)
	}
}

// readUnit reads one line of a unit as systemd does (systemd.syntax(7)), and returns the
// word of Environment=, or the one between the program and "last" of ExecStart=.
func readUnit(text string) (string, error) {
	line := strings.TrimSuffix(text, "\n")
	if strings.ContainsAny(line, "\n\r\x00") || strings.HasSuffix(line, `\`) {
		return "", errors.New("not one line")
	}
	line, isEnv := strings.CutPrefix(line, "Environment=")
	line, isExec := strings.CutPrefix(line, "ExecStart=")
	words, err := splitWords(line, isExec)
	switch {
	case err != nil:
		return "", err
	case isEnv && len(words) == 1:
		return words[0], nil
	case isExec && len(words) == 3 && words[0] == "/bin/x" && words[2] == "last":
		return words[1], nil
	}
	return "", errors.New("another number of words")
}

func splitWords(line string, isCommand bool) (words []string, err error) {
	for line = strings.Trim(line, " \t"); line != ""; line = strings.TrimLeft(line, " \t") {
		if isCommand && (line == ";" || strings.HasPrefix(line, "; ")) {
			return nil, errors.New("another command")
		}
		var b strings.Builder
		for in := byte(0); line != "" && (in != 0 || line[0] != ' ' && line[0] != '\t'); line = line[1:] {
			switch c := line[0]; {
			case c == in:
				in = 0
			case in == 0 && (c == '"' || c == '\''):
				in = c
			case c == '\\':
				if len(line) < 2 || line[1] != '\\' && line[1] != '"' {
					return nil, errors.New("an escape that no encoder writes")
				}
				line = line[1:]
				b.WriteByte(line[0])
			default:
				b.WriteByte(c)
			}
			if in != 0 && len(line) == 1 {
				return nil, errors.New("open quotes")
			}
		}
		word, err := halve(b.String(), '%')
		if err == nil && isCommand {
			word, err = halve(word, '$')
		}
		if err != nil {
			return nil, err
		}
		words = append(words, word)
	}
	return words, nil
}

// halve returns text with one mark for two, of which it has no single one.
func halve(text string, mark byte) (string, error) {
	double := string([]byte{mark, mark})
	if strings.IndexByte(strings.ReplaceAll(text, double, ""), mark) >= 0 {
		return "", errors.New("a specifier or a variable")
	}
	return strings.ReplaceAll(text, double, string(mark)), nil
}

// readShell reads a word of single quotes and of escaped single quotes.
func readShell(word string) (string, error) {
	var b strings.Builder
	for word != "" {
		rest, escaped := strings.CutPrefix(word, `\'`)
		if escaped {
			b.WriteByte('\'')
			word = rest
			continue
		}
		rest, quoted := strings.CutPrefix(word, "'")
		inner, after, closed := strings.Cut(rest, "'")
		if !quoted || !closed {
			return "", errors.New("not quoted")
		}
		b.WriteString(inner)
		word = after
	}
	return b.String(), nil
}
