package prometheus_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// promtool runs Prometheus' own tool, which .ci/install installs, and fails
// the test if it fails or has anything to remark.
func promtool(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Logf("NOT CHECKED: promtool %s: %v", strings.Join(args, " "), err)
		return
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
