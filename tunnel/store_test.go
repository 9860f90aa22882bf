package tunnel_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/tunnel"
)

// stores returns, for each kind of Store, two that share their state.
func stores(t *testing.T) map[string][2]tunnel.Store {
	memory, dir := &tunnel.MemoryStore{}, t.TempDir()
	return map[string][2]tunnel.Store{
		"memory":    {memory, memory},
		"directory": {tunnel.DirStore{Dir: dir}, tunnel.DirStore{Dir: dir}},
	}
}

const week = 7 * 24 * time.Hour

func testToken(n int, created time.Time) tunnel.Token {
	return tunnel.Token{ID: fmt.Sprintf("aaaaaaaaaaaaaa%c%c", 'a'+n/26, 'a'+n%26), Hash: strings.Repeat("0", 64), Cluster: "default/prod",
		Created: created, Expires: created.Add(time.Hour)}
}

func TestStoreTokens(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			ctx, tok := t.Context(), testToken(0, now)
			if err := s[0].AddToken(ctx, tok); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{testToken(9, now).ID, "", ".", "../tokens/" + tok.ID, "x", strings.Repeat("a", 15) + "\n"} {
				if _, err := s[0].Token(ctx, id); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("Token(%q): got %v, want %v", id, err, fs.ErrNotExist)
				}
				if _, err := s[0].ClaimToken(ctx, id, "k"); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("ClaimToken(%q): got %v, want %v", id, err, fs.ErrNotExist)
				}
			}
			if err := s[1].AddToken(ctx, tok); !errors.Is(err, fs.ErrExist) {
				t.Errorf("added twice: got %v, want %v", err, fs.ErrExist)
			}
			if got, err := s[1].Token(ctx, tok.ID); err != nil || !cmp.Equal(got, tok) {
				t.Errorf("got %v, %v; want %v", got, err, tok)
			}
			want := tok
			want.Key = "first"
			for _, key := range []string{"first", "second", "first"} {
				if got, err := s[1].ClaimToken(ctx, tok.ID, key); err != nil || !cmp.Equal(got, want) {
					t.Errorf("claimed by %s: got %v, %v; want %v", key, got, err, want)
				}
			}
			if got, err := s[0].Token(ctx, tok.ID); err != nil || !cmp.Equal(got, want) {
				t.Errorf("claimed: got %v, %v; want %v", got, err, want)
			}
			testForget(t, s, tok)
		})
	}
}

// testForget: tokens that expired a week ago go when another one comes.
func testForget(t *testing.T, s [2]tunnel.Store, tok tunnel.Token) {
	ctx := t.Context()
	if err := s[0].AddToken(ctx, testToken(1, tok.Expires.Add(week-1))); err != nil {
		t.Fatal(err)
	}
	if got, err := s[0].Token(ctx, tok.ID); err != nil || got.Key != "first" {
		t.Errorf("just before a week: got %v, %v", got, err)
	}
	if err := s[1].AddToken(ctx, testToken(2, tok.Expires.Add(week))); err != nil {
		t.Fatal(err)
	}
	if _, err := s[0].Token(ctx, tok.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a week: got %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := s[0].Token(ctx, testToken(1, time.Time{}).ID); err != nil {
		t.Errorf("the younger one: %v", err)
	}
	if dir, ok := s[0].(tunnel.DirStore); ok {
		if files := must(os.ReadDir(filepath.Join(dir.Dir, "tokens")))(t); len(files) != 2 {
			t.Errorf("got files %v, want those of two tokens", files)
		}
	}
}

func TestStoreRevoked(t *testing.T) {
	for name, s := range stores(t) {
		id := tunnel.Identity{Cluster: "default/prod", Agent: "a"}
		for range 2 {
			if err := s[0].Revoke(t.Context(), id); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, test := range []struct {
			id   tunnel.Identity
			want bool
		}{
			{id, true},
			{tunnel.Identity{Cluster: "default/prod", Agent: "b"}, false},
			{tunnel.Identity{Cluster: "default", Agent: "prod/a"}, false},
			{tunnel.Identity{Cluster: "../..", Agent: "a"}, false},
		} {
			if got, err := s[1].Revoked(t.Context(), test.id); err != nil || got != test.want {
				t.Errorf("%s: %v: got %t, %v; want %t", name, test.id, got, err, test.want)
			}
		}
	}
}

// TestDirStoreMissing: where there is no directory, nobody is known not to be
// revoked.
func TestDirStoreMissing(t *testing.T) {
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "not", "mounted")} {
		s := tunnel.DirStore{Dir: dir}
		if got, err := s.Revoked(t.Context(), tunnel.Identity{Cluster: "c", Agent: "a"}); err == nil {
			t.Errorf("%q: got %t, want an error", dir, got)
		}
		if _, err := s.Token(t.Context(), testToken(0, time.Time{}).ID); err == nil || errors.Is(err, fs.ErrNotExist) && dir == "" {
			t.Errorf("%q: got %v", dir, err)
		}
	}
}

func TestDirStoreDamaged(t *testing.T) {
	s := tunnel.DirStore{Dir: t.TempDir()}
	tok := testToken(0, time.Now())
	if err := s.AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "tokens", tok.ID+".json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Token(t.Context(), tok.ID); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want an error that says so", err)
	}
	for _, bad := range []tunnel.Token{{ID: "../../evil"}, {ID: strings.Repeat("a", 15) + "\n"}, {ID: strings.Repeat("A", 16)}, {ID: testToken(1, time.Time{}).ID, Key: "k"}} {
		if err := s.AddToken(t.Context(), bad); err == nil {
			t.Errorf("%v was added", bad.ID)
		}
	}
}

// TestClaimRace: of many keys that spend a token at the same time one wins,
// and all learn which.
func TestClaimRace(t *testing.T) {
	for name, s := range stores(t) {
		for round := range 8 {
			tok := testToken(round, time.Now())
			if err := s[0].AddToken(t.Context(), tok); err != nil {
				t.Fatal(err)
			}
			start, keys := make(chan struct{}), make([]string, 16)
			var wg sync.WaitGroup
			for n := range keys {
				wg.Go(func() {
					<-start
					got, err := s[n%2].ClaimToken(t.Context(), tok.ID, fmt.Sprint("key", n))
					if err != nil {
						t.Error(err)
					}
					keys[n] = got.Key
				})
			}
			close(start)
			wg.Wait()
			checkOneWinner(t, name, keys)
		}
	}
}

func checkOneWinner(t *testing.T, name string, keys []string) {
	t.Helper()
	for _, key := range keys {
		if key == "" || key != keys[0] {
			t.Errorf("%s: got winners %q, want one", name, keys)
			return
		}
	}
}

// TestEnrollRace is TestClaimRace with agents.
func TestEnrollRace(t *testing.T) {
	for name, shared := range stores(t) {
		s := newTunnelServer(t, shared[0])
		inv := s.invite("prod")
		codes := make([]tunnel.Code, 8)
		var wg sync.WaitGroup
		for n := range codes {
			key := newKey(t)
			wg.Go(func() {
				_, _, err, _ := s.enroll(inv, key)
				codes[n] = codeIn(err)
			})
		}
		wg.Wait()
		count := map[tunnel.Code]int{}
		for _, code := range codes {
			count[code]++
		}
		if want := map[tunnel.Code]int{0: 1, tunnel.CodeTokenUsed: 7}; !cmp.Equal(count, want) {
			t.Errorf("%s: got %v, want %v", name, count, want)
		}
	}
}

const childEnv = "CAUSEWAY_TEST_CHILD"

// TestChild is the other process of other tests, and does nothing by itself.
func TestChild(t *testing.T) {
	args := strings.Split(os.Getenv(childEnv), "|")
	switch args[0] {
	case "claim": // directory, id, key
		fmt.Println("ready")
		bufio.NewReader(os.Stdin).ReadString('\n')
		tok, err := tunnel.DirStore{Dir: args[1]}.ClaimToken(t.Context(), args[2], args[3])
		fmt.Println(tok.Key, err)
	case "save": // directory of the store, directories to copy from in turn
		var saved []*tunnel.Credentials
		for _, dir := range args[2:] {
			saved = append(saved, must(tunnel.FileStore{Dir: dir}.Load(t.Context()))(t))
		}
		for n := 0; ; n++ {
			err := tunnel.FileStore{Dir: args[1]}.Save(t.Context(), saved[n%len(saved)])
			if _, gone := fmt.Println("saved", err); gone != nil {
				return
			}
		}
	}
}

// child starts a process that runs TestChild. It ends with the test.
func child(t *testing.T, args ...string) (in io.Writer, lines *bufio.Scanner, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(args, "|"))
	stdin, stdout := must(cmd.StdinPipe())(t), must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() { cmd.Process.Kill(); cmd.Wait() })
	t.Cleanup(kill)
	return stdin, bufio.NewScanner(stdout), kill
}

// TestClaimProcesses is TestClaimRace with processes.
func TestClaimProcesses(t *testing.T) {
	s := tunnel.DirStore{Dir: t.TempDir()}
	tok := testToken(0, time.Now())
	if err := s.AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	var ins []io.Writer
	var outs []*bufio.Scanner
	for n := range 4 {
		in, out, _ := child(t, "claim", s.Dir, tok.ID, fmt.Sprint("key", n))
		if !out.Scan() || out.Text() != "ready" {
			t.Fatalf("got %q from the child", out.Text())
		}
		ins, outs = append(ins, in), append(outs, out)
	}
	for _, in := range ins {
		io.WriteString(in, "go\n")
	}
	keys := make([]string, len(outs))
	for n, out := range outs {
		out.Scan()
		keys[n] = out.Text()
	}
	checkOneWinner(t, "processes", keys)
	if got := must(s.Token(t.Context(), tok.ID))(t); got.Key+" <nil>" != keys[0] {
		t.Errorf("got %q in the store, want %q", got.Key, keys[0])
	}
}
