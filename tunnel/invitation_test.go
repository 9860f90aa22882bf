package tunnel_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/tunnel"
)

const (
	testTokenText = "causeway1.EBESExQVFhcYGQAAAZt8qYyI3q2-72RlZmF1bHQvcHJvZA.AwoRGB8mLTQ7QklQV15lbHN6gYiPlp2kq7K5wMfO1dzj6vH4_wYNFBsiKTA3PkVMU1phaG92fYSLkpmgp661vMPK0djf5g"
	oldTokenText  = "abcdefghijklmnop.abcdefghijklmnopqrstuvwxyz234567" // of before there were signatures
	testPin       = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	minimal       = "CAUSEWAY_TOKEN=" + testTokenText + "\nCAUSEWAY_PIN=" + testPin + "\n"
)

func TestInvitationText(t *testing.T) {
	i := tunnel.Invitation{
		Servers: []string{"tunnel.example.com:443", "wss://[2001:db8::1]:8443/a,b?c=$HOME&d='%20'"},
		Cluster: `default/ünï"'$(x)`,
		Token:   testTokenText, Pin: testPin,
		Expires: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	want := `CAUSEWAY_SERVERS=tunnel.example.com:443,wss://[2001:db8::1]:8443/a%2Cb%3Fc%3D%24HOME%26d%3D%27%2520%27
CAUSEWAY_CLUSTER=default/%C3%BCn%C3%AF%22%27%24%28x%29
CAUSEWAY_TOKEN=` + testTokenText + `
CAUSEWAY_PIN=` + testPin + `
CAUSEWAY_EXPIRES=2026-01-02T03:04:05Z
`
	if diff := cmp.Diff(want, i.Reveal()); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(i.Servers[1], "%2C") {
		t.Error("Reveal wrote to the caller's slice")
	}
	got, err := tunnel.ParseInvitation(want)
	if err != nil || !cmp.Equal(got, i) {
		t.Errorf("got %s, %v; want %s", got.Reveal(), err, i.Reveal())
	}
}

func TestParseInvitation(t *testing.T) {
	least := tunnel.Invitation{Token: testTokenText, Pin: testPin}
	for _, test := range []struct {
		text string
		want tunnel.Invitation
		says string // of the error
	}{
		{minimal, least, ""},
		{"\ufeff" + minimal, least, ""},
		{"# a comment\r\n\r\n export PATH=x=y\n" + strings.ReplaceAll(minimal, "\n", "\r\n"), least, ""},
		{`export CAUSEWAY_TOKEN="` + testTokenText + "\"\nCAUSEWAY_PIN='" + testPin + "'", least, ""},
		{minimal + "CAUSEWAY_EXPIRES=2026-01-02T03:04:05.5+01:00", tunnel.Invitation{Token: testTokenText, Pin: testPin, Expires: time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC)}, ""},
		{minimal + "CAUSEWAY_OTHER=1\nPATH=1\nPATH=2", least, ""},
		{"", tunnel.Invitation{}, "Token"},
		{"CAUSEWAY_TOKEN=" + testTokenText, tunnel.Invitation{}, "Pin"},
		{"CAUSEWAY_PIN=" + testPin, tunnel.Invitation{}, "field Token (CAUSEWAY_TOKEN) is missing"},
		{strings.Replace(minimal, "=c", "=C", 1), tunnel.Invitation{}, "begins with causeway1."},
		{strings.Replace(minimal, ".", "", 1), tunnel.Invitation{}, "Token"},
		{strings.Replace(minimal, testTokenText, testTokenText[:40], 1), tunnel.Invitation{}, "two more parts"},
		{strings.Replace(minimal, "sha256:", "sha1:", 1), tunnel.Invitation{}, "Pin"},
		{strings.Replace(minimal, "abcdef\n", "ABCDEF\n", 1), tunnel.Invitation{}, "Pin"},
		{strings.Replace(minimal, "abcdef\n", "abcd\n", 1), tunnel.Invitation{}, "Pin"},
		{minimal + minimal, tunnel.Invitation{}, "line 3"},
		{minimal + testTokenText, tunnel.Invitation{}, "line 3"},
		{"CAUSEWAY_SERVERS=a:1 CAUSEWAY_TOKEN=" + testTokenText + " causeway-agent", tunnel.Invitation{}, "line 1: CAUSEWAY_SERVERS has a space: want one variable a line"},
		{minimal + "CAUSEWAY_CLUSTER=%zz", tunnel.Invitation{}, "line 3"},
		{minimal + "CAUSEWAY_CLUSTER=a b", tunnel.Invitation{}, "Cluster"},
		{minimal + "CAUSEWAY_SERVERS=a:1,,b:1", tunnel.Invitation{}, "line 3: an address of CAUSEWAY_SERVERS is empty or wrong: "},
		{minimal + "CAUSEWAY_SERVERS=a", tunnel.Invitation{}, "CAUSEWAY_SERVERS is empty or wrong: tunnel: config: the server's address is neither host:port nor a ws or wss URL"},
		{minimal + "CAUSEWAY_SERVERS=a:1,wss://b:0/", tunnel.Invitation{}, "line 3: an address of CAUSEWAY_SERVERS"},
		{minimal + "CAUSEWAY_SERVERS=https://u:" + testTokenText[20:30] + "@a", tunnel.Invitation{}, "line 3: an address of CAUSEWAY_SERVERS"},
		{minimal + "CAUSEWAY_SERVERS=", tunnel.Invitation{}, "line 3"},
		{minimal + "CAUSEWAY_EXPIRES=tomorrow", tunnel.Invitation{}, "line 3"},
	} {
		got, err := tunnel.ParseInvitation(test.text)
		if !cmp.Equal(got, test.want) || (err != nil) != (test.says != "") {
			t.Errorf("%q: got %s, %v", test.text, got.Reveal(), err)
		}
		if err != nil && (!strings.Contains(err.Error(), test.says) || codeIn(err) != tunnel.CodeConfig) {
			t.Errorf("%q: got %v, want %q", test.text, err, test.says)
		}
		if err != nil && (strings.Contains(err.Error(), testTokenText[20:30]) || strings.Contains(err.Error(), "%zz")) {
			t.Errorf("%q: got a value in %v", test.text, err)
		}
	}
}

func TestReadInvitation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "invitation")
	if _, err := tunnel.ReadInvitation(path); !errors.Is(err, fs.ErrNotExist) || codeIn(err) != tunnel.CodeConfig {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
	for text, want := range map[string]tunnel.Code{
		minimal: 0, "CAUSEWAY_TOKEN=x": tunnel.CodeConfig, minimal + strings.Repeat("#", 64<<10): tunnel.CodeConfig,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		i, err := tunnel.ReadInvitation(path)
		if codeIn(err) != want || want == 0 && i.Token != testTokenText || want != 0 && !strings.Contains(err.Error(), path) {
			t.Errorf("%.40q: got %v, %v; want %v", text, i, err, want)
		}
	}
}

func FuzzParseInvitation(f *testing.F) {
	f.Add(minimal)
	f.Add(minimal + "CAUSEWAY_SERVERS=a:1,wss://b/%2C\nCAUSEWAY_CLUSTER=a/b\nCAUSEWAY_EXPIRES=2026-01-02T03:04:05Z")
	f.Add("export CAUSEWAY_TOKEN='" + testTokenText + "'\nCAUSEWAY_PIN=\"" + testPin + "\"\n#")
	f.Add(strings.Replace(minimal, testTokenText, testTokenText[:len(testTokenText)-1]+"\xff", 1))
	f.Fuzz(func(t *testing.T, text string) {
		i, err := tunnel.ParseInvitation(text)
		if err != nil {
			return
		}
		again, err := tunnel.ParseInvitation(i.Reveal())
		if err != nil || !cmp.Equal(again, i) {
			t.Errorf("got %q, %v; want %q", again.Reveal(), err, i.Reveal())
		}
		// Of the token nothing is to be seen: with another the text is the same.
		// (The secret itself may be in it, as a part of the pin or the cluster.)
		other := i
		other.Token = testTokenText
		if i.String() != other.String() {
			t.Errorf("got the token in %s", i)
		}
	})
}
