package prometheus_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Who has a tunnel builds no client-go.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("got %d packages, want them all", len(deps))
	}
	for _, dep := range deps {
		for _, heavy := range []string{"k8s.io/", "sigs.k8s.io/", "google.golang.org/grpc"} {
			if strings.HasPrefix(dep, heavy) {
				t.Errorf("the package depends on %s", dep)
			}
		}
	}
}
