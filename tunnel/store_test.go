package tunnel_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
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

	"github.com/causewayproject/causeway/internal/test/storetest"
	"github.com/causewayproject/causeway/tunnel"
)

// stores opens each kind of Store.
var stores = map[string]func(*testing.T) storetest.Pair{
	"memory": func(*testing.T) storetest.Pair {
		s := &tunnel.MemoryStore{}
		return storetest.Pair{s, s}
	},
	"directory": func(t *testing.T) storetest.Pair {
		dir := t.TempDir()
		s := tunnel.DirStore{Dir: dir, Interval: time.Millisecond}
		return storetest.Pair{s, s}
	},
}

func TestStores(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) { storetest.Run(t, open) })
	}
}

// A server that died while it replaced a value holds up the others for a minute.
func TestDirStoreLockOfTheDead(t *testing.T) {
	s := tunnel.DirStore{Dir: t.TempDir()}
	r := tunnel.Record{Kind: tunnel.KindValue, Name: "servers", Data: []byte("a")}
	if err := s.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	lock, died := filepath.Join(s.Dir, ".new-lock-servers"), time.Now().Add(-61*time.Second)
	if err := errors.Join(os.WriteFile(lock, nil, 0o600), os.Chtimes(lock, died, died)); err != nil {
		t.Fatal(err)
	}
	r.Data = []byte("b")
	records := tunnel.Records{Store: s}
	if err := records.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), r.Kind, r.Name); err != nil || string(got.Data) != "b" {
		t.Errorf("got %q, %v, want b", got.Data, err)
	}
}

// What stands where a revocation does, and is none, is an error: nobody is let in by it,
// and nobody waits for it.
func TestDirStoreOddFiles(t *testing.T) {
	for name, damage := range map[string]func(dir, hash string) error{
		"too long": func(dir, hash string) error {
			return os.WriteFile(filepath.Join(dir, hash+".json"), make([]byte, 1<<20+1), 0o600)
		},
		"a folder": func(dir, hash string) error { return os.Mkdir(filepath.Join(dir, hash+".json"), 0o700) },
		"another name": func(dir, hash string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, hash+".clusters"), 0o700), os.WriteFile(filepath.Join(dir, hash+".clusters", "xx.json"), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			records, id := tunnel.Records{Store: tunnel.DirStore{Dir: t.TempDir()}}, tunnel.Identity{Cluster: "prod"}
			dir := filepath.Join(records.Store.(tunnel.DirStore).Dir, "revoked")
			sum := sha256.Sum256([]byte(id.URI().String()))
			if err := errors.Join(os.Mkdir(dir, 0o700), damage(dir, hex.EncodeToString(sum[:]))); err != nil {
				t.Fatal(err)
			}
			if at, err := records.Revoked(t.Context(), id); err == nil {
				t.Errorf("got %v, want an error", at)
			}
		})
	}
}

// TestDirStoreForgets leaves no file of a token behind.
func TestDirStoreForgets(t *testing.T) {
	s := tunnel.DirStore{Dir: t.TempDir()}
	old := storetest.Token(0, time.Now())
	for n, created := range []time.Time{old.Created, old.Created, old.Expires.Add(7 * 24 * time.Hour)} {
		if err := recordsOf(s).AddToken(t.Context(), storetest.Token(n, created)); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			must(recordsOf(s).ClaimToken(t.Context(), old.ID, "key"))(t)
		}
	}
	if files := must(os.ReadDir(filepath.Join(s.Dir, "tokens")))(t); len(files) != 1 {
		t.Errorf("got files %v, want that of one token", files)
	}
}

// TestDirStoreMissing: where there is no directory, nobody is known not to be
// revoked.
func TestDirStoreMissing(t *testing.T) {
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "not", "mounted")} {
		s := tunnel.DirStore{Dir: dir}
		if got, err := recordsOf(s).Revoked(t.Context(), tunnel.Identity{Cluster: "c", Agent: "a"}); err == nil {
			t.Errorf("%q: got %v, want an error", dir, got)
		}
		if _, err := recordsOf(s).ClaimToken(t.Context(), storetest.Token(0, time.Time{}).ID, "k"); err == nil || errors.Is(err, fs.ErrNotExist) && dir == "" {
			t.Errorf("%q: got %v", dir, err)
		}
	}
}

func TestDirStoreDamaged(t *testing.T) {
	s := tunnel.DirStore{Dir: t.TempDir()}
	tok := storetest.Token(0, time.Now())
	if err := recordsOf(s).AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "tokens", tok.ID+".json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := recordsOf(s).ClaimToken(t.Context(), tok.ID, "k"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want an error that says so", err)
	}
	for _, bad := range []tunnel.Token{{ID: "../../evil"}, {ID: strings.Repeat("a", 15) + "\n"}, {ID: strings.Repeat("A", 16)}, {ID: storetest.Token(1, time.Time{}).ID, Keys: []string{"k"}}} {
		if err := recordsOf(s).AddToken(t.Context(), bad); err == nil {
			t.Errorf("%v was added", bad.ID)
		}
	}
}

// TestEnrollRace: of many agents that enrol with one token at the same time one wins.
func TestEnrollRace(t *testing.T) {
	for name, open := range stores {
		s := newTunnelServer(t, open(t)[0])
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
		tok, err := recordsOf(tunnel.DirStore{Dir: args[1]}).ClaimToken(t.Context(), args[2], args[3])
		fmt.Println(tok.Keys, err)
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

// TestClaimProcesses: of processes that spend a token at the same time one wins.
func TestClaimProcesses(t *testing.T) {
	s := tunnel.DirStore{Dir: t.TempDir()}
	tok := storetest.Token(0, time.Now())
	if err := recordsOf(s).AddToken(t.Context(), tok); err != nil {
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
	storetest.OneWinner(t, keys)
	if got := must(recordsOf(s).ClaimToken(t.Context(), tok.ID, "late"))(t); fmt.Sprint(got.Keys, " <nil>") != keys[0] {
		t.Errorf("got %v in the store, want %q", got.Keys, keys[0])
	}
}
