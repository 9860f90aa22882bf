package rig_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// childEnv holds how long a child is patient.
const childEnv = "CAUSEWAY_RIG_PATIENCE"

func TestMain(m *testing.M) {
	// The processes that the tests start are this one again.
	if patience, err := time.ParseDuration(os.Getenv(childEnv)); err == nil {
		rig.Serve(os.Stdin, os.Stdout, patience, answer)
		if deaf {
			time.Sleep(time.Minute)
		}
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// deaf is a child that stays when its input ends.
var deaf bool

func answer(ctx context.Context, q string) string {
	switch q {
	case "die":
		fmt.Fprint(os.Stderr, "no more", strings.Repeat(".", 1<<20))
		os.Exit(3)
	case "wait":
		<-ctx.Done()
	case "deaf":
		deaf = true
	}
	return q
}

func start(t *testing.T) *rig.Child[string, string] {
	t.Helper()
	c, err := rig.Start[string, string](childEnv, "1m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	return c
}

// Whoever asks gets the reply to its own request.
func TestAsk(t *testing.T) {
	c := start(t)
	var wg sync.WaitGroup
	for i := range 2000 {
		wg.Go(func() {
			q := fmt.Sprint(i)
			if r, err := c.Ask(t.Context(), q); r != q || err != nil {
				t.Errorf("got %q, error %v; want %q", r, err, q)
			}
		})
	}
	wg.Wait()
}

// The error has the beginning of what a process said that died.
func TestDead(t *testing.T) {
	_, err := start(t).Ask(t.Context(), "die")
	if err == nil || !strings.Contains(err.Error(), ": no more...") || len(err.Error()) > 5<<10 {
		t.Errorf("got %.99v, want an error with what it said, cut", err)
	}
}

// A process whose request was given up answers no other.
func TestGivenUp(t *testing.T) {
	c := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := c.Ask(ctx, "wait"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %q, error %v; want %v", r, err, context.Canceled)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if r, err := c.Ask(ctx, "more"); err == nil || ctx.Err() != nil {
		t.Errorf("got %q, error %v; want that of a process that has ended", r, err)
	}
}

// Stop kills a process that does not end in time.
func TestStop(t *testing.T) {
	c := start(t)
	if r, err := c.Ask(t.Context(), "deaf"); err != nil {
		t.Fatalf("got %q, error %v", r, err)
	}
	began := time.Now()
	c.Stop(time.Millisecond)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("got %v, want less than the child's own patience", took)
	}
}

// The end of the input ends a request that waits, and a process that does not end.
func TestServe(t *testing.T) {
	for _, tt := range []struct{ request, patience, code string }{
		{"wait", "1m", "exit status 0"},
		{"deaf", "1ms", "exit status 1"},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+tt.patience)
		cmd.Stdin = strings.NewReader(`"` + tt.request + `"`)
		cmd.Run()
		if got := cmd.ProcessState.String(); got != tt.code {
			t.Errorf("%s: got %s, want %s", tt.request, got, tt.code)
		}
	}
}

func TestStatus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status")
	for content, want := range map[string]rig.Usage{ // no RSS: an error
		"Name:\tbench\nVmHWM:\t   20 kB\nVmRSS:\t   12 kB\n": {Peak: 20 << 10, RSS: 12 << 10},
		"":                              {},
		"VmHWM:\t20 kB\n":               {Peak: 20 << 10},
		"VmHWM:\t20\nVmRSS:\t12 kB\n":   {},
		"VmHWM:\t20 B\nVmRSS:\t12 kB\n": {},
		"VmHWM:\tx kB\nVmRSS:\t12 kB\n": {},
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := rig.Status(path); got != want || (err != nil) != (want.RSS == 0) {
			t.Errorf("%q: got %+v, error %v; want %+v", content, got, err, want)
		}
	}
}

func TestRaiseFiles(t *testing.T) {
	var before, after syscall.Rlimit
	syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before)
	syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 100, Max: before.Max})
	got, err := rig.RaiseFiles(0)
	syscall.Getrlimit(syscall.RLIMIT_NOFILE, &after)
	if got != before.Max || after.Cur != got || err != nil {
		t.Errorf("got %d, error %v, limits %+v; want %d", got, err, after, before.Max)
	}
}
