package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Who runs an agent gets no Kubernetes library with it, and a small binary.
func TestSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("got %d packages, want them all", len(deps))
	}
	for _, dep := range deps {
		for _, heavy := range []string{"k8s.io/", "sigs.k8s.io/", "github.com/spf13/cobra"} {
			if strings.HasPrefix(dep, heavy) {
				t.Errorf("it depends on %s", dep)
			}
		}
	}
	program := filepath.Join(t.TempDir(), "causeway-agent")
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const most = 12_000_000
	if info, err := os.Stat(program); err != nil || info.Size() >= most {
		t.Errorf("got %d bytes, %v; want less than %d", info.Size(), err, most)
	} else {
		t.Logf("%d bytes", info.Size())
	}
}
