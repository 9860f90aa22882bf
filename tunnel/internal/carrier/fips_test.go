package carrier_test

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// A program with GODEBUG=fips140=only panics where it uses an algorithm that
// FIPS 140 does not approve. A WebSocket's handshake gets by without one.
func TestFIPSOnly(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.timeout=60s",
		"-test.run=^(TestWebSocketThroughAProxy|TestWebSocketThroughALoadBalancer)$")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
	out, err := cmd.CombinedOutput()
	if passed := regexp.MustCompile(`(?m)^--- PASS: `).FindAll(out, -1); err != nil || len(passed) != 2 {
		t.Errorf("got %d tests that pass, %v, want 2:\n%s", len(passed), err, out)
	}
}
