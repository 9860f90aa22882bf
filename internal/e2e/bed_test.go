package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// The client has no way to the API server but a proxy, or the other tests
// would prove nothing. That the server can be reached from beside the proxies
// shows that it is the route that is missing.
func TestNoDirectRoute(t *testing.T) {
	b := sharedBed(t)
	for _, tt := range []struct {
		name string
		from *bed.Namespace
		to   string
		want dialAnswer
	}{
		{"client", b.Network.Client, b.Kube.Address(), dialAnswer{NoRoute: true}},
		{"proxy", b.Network.Proxy, b.Kube.Address(), dialAnswer{Connected: true}},
		// The tunnel's two sides have no way to each other but the office proxy.
		{"hub", b.Network.Hub, b.Kube.Address(), dialAnswer{NoRoute: true}},
		{"agent", b.Network.API, net.JoinHostPort(bed.HubIP, tunnelPort), dialAnswer{NoRoute: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got dialAnswer
			if err := tt.from.Play(t.Context(), "dial", dialInput{tt.to}, &got); err != nil {
				t.Fatal(err)
			}
			t.Logf("dial %s: %+v", tt.to, got)
			got.Err = ""
			if got != tt.want {
				t.Errorf("dial %s: got %+v, want %+v", tt.to, got, tt.want)
			}
		})
	}
}

// A test process that panics runs no cleanup of its own. What a run has left
// behind, the next one removes when it starts.
func TestCrashLeavesNothing(t *testing.T) {
	stale := staleNamespace(t)
	left := crash(t)
	crash(t)
	paths := []string{left.Dir, stale}
	for _, name := range left.Namespaces {
		paths = append(paths, filepath.Join("/run/netns", name))
	}
	for _, path := range paths {
		if err := gone(path); err != nil {
			t.Error(err)
		}
	}
	if err := bed.Poll(t.Context(), "its processes to be gone", noProcess(left.Dir)); err != nil {
		t.Error(err)
	}
}

// crash starts a bed in another process, which then panics.
func crash(t *testing.T) (left crashAnswer) {
	t.Helper()
	c, err := bed.RoleCommand("crash", nil)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), c.Argv[0])
	cmd.Env = append(os.Environ(), c.Env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil || !strings.Contains(stderr.String(), "as the test wants it") {
		t.Fatalf("the role ended with %v, want its panic; it said:\n%s", err, stderr.String())
	}
	if err := json.Unmarshal(out, &left); err != nil {
		t.Fatalf("decode %q: %v", out, err)
	}
	return left
}

// staleNamespace makes a namespace that looks as if left by a run that is gone,
// and returns its path.
func staleNamespace(t *testing.T) string {
	t.Helper()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("causeway-e2e-%d-000000-client", ended.Process.Pid)
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Fatalf("ip netns add: %v: %s", err, out)
	}
	return filepath.Join("/run/netns", name)
}

func gone(path string) error {
	_, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s is still there", path), err)
}

// noProcess fails while a process has text in its command line: all servers of
// a bed have its folder there.
func noProcess(text string) func(context.Context) error {
	return func(context.Context) error {
		paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return err
		}
		for _, path := range paths {
			if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(text)) {
				return fmt.Errorf("%s: %q", path, line)
			}
		}
		return nil
	}
}
