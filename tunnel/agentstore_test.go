package tunnel_test

import (
	"crypto"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

func credentials(t testing.TB) *tunnel.Credentials {
	a, key := newAuthority(t), newKey(t)
	return &tunnel.Credentials{Key: key, Chain: []*x509.Certificate{leaf(t, a, key, nil)}, Roots: []*x509.Certificate{a.Certificate, newAuthority(t).Certificate}}
}

func sameCredentials(a, b *tunnel.Credentials) bool {
	if a == nil || b == nil || len(a.Chain) != len(b.Chain) || len(a.Roots) != len(b.Roots) {
		return false
	}
	for n := range a.Roots {
		if !a.Roots[n].Equal(b.Roots[n]) {
			return false
		}
	}
	return a.Key.(interface{ Equal(crypto.PrivateKey) bool }).Equal(b.Key) && (len(a.Chain) == 0 || a.Chain[0].Equal(b.Chain[0]))
}

func TestCredentialStores(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for name, s := range map[string]tunnel.CredentialStore{"file": tunnel.FileStore{Dir: dir}, "memory": &tunnel.MemoryCredentials{}} {
		if c, err := s.Load(t.Context()); c != nil || err != nil {
			t.Errorf("%s: got %v, %v; want none", name, c, err)
		}
		for _, want := range []*tunnel.Credentials{{Key: newKey(t)}, credentials(t), credentials(t)} {
			if err := s.Save(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Load(t.Context()); err != nil || !sameCredentials(got, want) {
				t.Errorf("%s: got %v, %v; want %v", name, got, err, want)
			}
		}
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "credentials.pem"): 0o600} {
		if got := must(os.Stat(path))(t).Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	if files := must(os.ReadDir(dir))(t); len(files) != 1 {
		t.Errorf("got files %v, want one", files)
	}
}

func TestFileStoreRefuses(t *testing.T) {
	good := credentials(t)
	for name, c := range map[string]*tunnel.Credentials{
		"none":        nil,
		"no key":      {Chain: good.Chain, Roots: good.Roots},
		"another key": {Key: newKey(t), Chain: good.Chain, Roots: good.Roots},
		"no roots":    {Key: good.Key, Chain: good.Chain},
	} {
		s := tunnel.FileStore{Dir: t.TempDir()}
		if err := s.Save(t.Context(), good); err != nil {
			t.Fatal(err)
		}
		if err := s.Save(t.Context(), c); codeIn(err) != tunnel.CodeConfig {
			t.Errorf("%s: got %v, want %v", name, err, tunnel.CodeConfig)
		}
		if got, err := s.Load(t.Context()); err != nil || !sameCredentials(got, good) {
			t.Errorf("%s: got %v, %v; want the old ones", name, got, err)
		}
		if text, err := c.PEM(); codeIn(err) != tunnel.CodeConfig || text != nil {
			t.Errorf("%s: got %q, %v; want %v", name, text, err, tunnel.CodeConfig)
		}
	}
	if got, err := tunnel.ParseCredentials([]byte(pemOf(t, good))); err != nil || !sameCredentials(got, good) {
		t.Errorf("got %v, %v; want %v", got, err, good)
	}
	s := tunnel.FileStore{Dir: t.TempDir()}
	text := pemOf(t, good)
	for name, damaged := range map[string]string{
		"empty": "", "half": text[:len(text)/8], "no key": text[strings.Index(text, "-----BEGIN CERT"):], "key of another": pemOf(t, credentials(t)) + text[:strings.Index(text, "-----BEGIN CERT")],
	} {
		if err := os.WriteFile(filepath.Join(s.Dir, "credentials.pem"), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := s.Load(t.Context()); codeIn(err) != tunnel.CodeConfig || c != nil {
			t.Errorf("%s: got %v, %v; want %v", name, c, err, tunnel.CodeConfig)
		}
		if c, err := tunnel.ParseCredentials([]byte(damaged)); codeIn(err) != tunnel.CodeConfig || c != nil {
			t.Errorf("%s: got %v, %v; want %v", name, c, err, tunnel.CodeConfig)
		}
	}
	long := tunnel.FileStore{Dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(long.Dir, "credentials.pem"), []byte(text+strings.Repeat("\n", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := long.Load(t.Context()); codeIn(err) != tunnel.CodeConfig || c != nil {
		t.Errorf("too long: got %v, %v; want %v", c, err, tunnel.CodeConfig)
	}
	for _, s := range []tunnel.FileStore{{}, {Dir: "/dev/null/x"}} {
		if err := s.Save(t.Context(), good); codeIn(err) != tunnel.CodeConfig {
			t.Errorf("%+v: got %v, want %v", s, err, tunnel.CodeConfig)
		}
		if _, err := s.Load(t.Context()); codeIn(err) != tunnel.CodeConfig {
			t.Errorf("%+v: got %v, want %v", s, err, tunnel.CodeConfig)
		}
	}
}

func pemOf(t testing.TB, c *tunnel.Credentials) string {
	return string(must(c.PEM())(t))
}

// TestFileStoreAtomic: whoever reads while another writes sees the old or the
// new ones.
func TestFileStoreAtomic(t *testing.T) {
	s := tunnel.FileStore{Dir: t.TempDir()}
	two := [2]*tunnel.Credentials{credentials(t), credentials(t)}
	if err := s.Save(t.Context(), two[0]); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 40 {
			if err := s.Save(t.Context(), two[n%2]); err != nil {
				t.Error(err)
			}
		}
	}()
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
		}
		if got, err := s.Load(t.Context()); err != nil || !sameCredentials(got, two[0]) && !sameCredentials(got, two[1]) {
			t.Fatalf("got %v, %v", got, err)
		}
	}
}

// TestFileStoreKilled kills a process again and again while it saves.
func TestFileStoreKilled(t *testing.T) {
	a, b, s := tunnel.FileStore{Dir: t.TempDir()}, tunnel.FileStore{Dir: t.TempDir()}, tunnel.FileStore{Dir: t.TempDir()}
	two := [2]*tunnel.Credentials{credentials(t), credentials(t)}
	for n, from := range []tunnel.FileStore{a, b} {
		if err := from.Save(t.Context(), two[n]); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 5 {
		_, lines, kill := child(t, "save", s.Dir, a.Dir, b.Dir)
		for range 3*round + 1 {
			if !lines.Scan() || lines.Text() != "saved <nil>" {
				t.Fatalf("got %q from the child", lines.Text())
			}
		}
		kill()
		if got, err := s.Load(t.Context()); err != nil || !sameCredentials(got, two[0]) && !sameCredentials(got, two[1]) {
			t.Fatalf("killed: got %v, %v", got, err)
		}
	}
	// A later save cleans up, once nobody can be writing any more.
	left := filepath.Join(s.Dir, ".new-left")
	young := filepath.Join(s.Dir, ".new-young")
	for _, name := range []string{left, young} {
		if err := os.WriteFile(name, []byte("half a key"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), two[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a crash left is still there")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error("what another may be writing was removed")
	}
}
