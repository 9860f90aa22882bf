package noproxy_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/causewayproject/causeway/noproxy"
)

// programs are consumers that can be asked themselves, without a network.
var programs = []struct {
	consumer noproxy.Consumer
	column   string // of the vectors, for the version that they are from
	argv     []string
	needs    []string // fails without what argv needs
	missing  string
}{
	{noproxy.JVM, "want_jvm_17", []string{"java", "testdata/programs/Ask.java"},
		[]string{"javac", "-version"}, "a JDK: the Debian package default-jdk-headless"},
	{noproxy.Requests, "want_requests_2_34_2", []string{"python3", "testdata/programs/ask.py"},
		[]string{"python3", "-c", "import requests"}, "Requests: the Debian package python3-requests"},
}

// programPair is a list and a URL, and what host and port are in it.
type programPair struct{ list, host, port, url string }

// askProgram returns direct, proxy or "" (refused) for each pair.
func askProgram(t *testing.T, consumer noproxy.Consumer, argv []string, pairs []programPair) []string {
	t.Helper()
	var in strings.Builder
	for _, p := range pairs {
		list := p.list
		if consumer == noproxy.JVM {
			list = strings.ReplaceAll(list, ",", "|")
		}
		in.WriteString(list + "\x00" + p.url + "\x00")
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(in.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", argv, err)
	}
	answers := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(answers) != len(pairs) {
		t.Fatalf("%s: got %d answers, want %d", argv, len(answers), len(pairs))
	}
	return answers
}

// TestPrograms asks the programs themselves: the vectors are what they answer,
// and so is Consumer.Bypass, about random lists too.
func TestPrograms(t *testing.T) {
	for _, p := range programs {
		t.Run(p.consumer.String(), func(t *testing.T) {
			if err := exec.CommandContext(t.Context(), p.needs[0], p.needs[1:]...).Run(); err != nil {
				if os.Getenv("CI") == "true" {
					t.Fatalf("%v: install %s, or run .ci/install", err, p.missing)
				}
				t.Skipf("%v: install %s, or run .ci/install", err, p.missing)
			}
			pairs, want := vectorPairs(t, p.column)
			for i, got := range askProgram(t, p.consumer, p.argv, pairs) {
				if got != want[i] {
					t.Errorf("vector %d: %q about %s: got %q, want %q", i, pairs[i].list, pairs[i].url, got, want[i])
				}
			}
			pairs = randomPairs(2_500)
			answers, differences := map[string]int{}, 0
			for i, got := range askProgram(t, p.consumer, p.argv, pairs) {
				q := pairs[i]
				answers[got]++
				if said := p.consumer.Bypass(q.list, q.host, q.port); said != (got == "direct") {
					t.Errorf("%q about %s: got %q, Bypass(%q, %q): %v", q.list, q.url, got, q.host, q.port, said)
					differences++
				}
			}
			t.Logf("%d differences in %d random pairs; answers: %v", differences, len(pairs), answers)
			if answers["direct"] < 250 || answers["proxy"] < 250 {
				t.Errorf("got answers %v, want at least 250 of either", answers)
			}
		})
	}
}

// vectorPairs returns those of the vectors that were asked, and the answers.
func vectorPairs(t *testing.T, column string) (pairs []programPair, want []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/noproxy.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if verdict, asked := row[column]; asked {
			pairs = append(pairs, programPair{list: row["no_proxy"].(string), url: row["url"].(string)})
			want = append(want, map[any]string{true: "direct", false: "proxy", nil: ""}[verdict])
		}
	}
	if len(pairs) < minVectors {
		t.Fatalf("%s: got %d verdicts, want at least %d", column, len(pairs), minVectors)
	}
	return pairs, want
}

// randomPairs returns lists with some blanks between the items, and URLs.
func randomPairs(n int) []programPair {
	g := generator{rand.New(rand.NewPCG(3, 4))}
	var pairs []programPair
	for len(pairs) < n {
		items := g.items()
		list := strings.Join(items, pick(g, ",", ",", ", ", " ,"))
		if !utf8.ValidString(list) {
			continue
		}
		for range 8 {
			q := g.question(items)
			if p := (programPair{list, q.host, q.port, ""}); p.writeURL(g.IntN(2) == 0) {
				pairs = append(pairs, p)
			}
		}
	}
	return pairs[:n]
}

// writeURL reports whether the host can be written in a URL.
func (p *programPair) writeURL(withPort bool) bool {
	host := p.host
	if strings.Contains(host, ":") {
		if _, err := netip.ParseAddr(host); err != nil {
			return false
		}
		host = "[" + strings.ReplaceAll(host, "%", "%25") + "]"
	} else if host == "" || !utf8.ValidString(host) || strings.ContainsFunc(host, unicode.IsSpace) || strings.ContainsAny(host, "[]/*") {
		return false
	}
	if withPort {
		p.url = "http://" + host + ":" + p.port + "/"
	} else {
		p.url, p.port = "http://"+host+"/", "http"
	}
	return true
}
