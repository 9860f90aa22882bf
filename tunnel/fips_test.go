package tunnel_test

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// A program with GODEBUG=fips140=only panics where it uses an algorithm that
// FIPS 140 does not approve. An agent enrols, serves and leaves without one,
// over each kind of carrier.
func TestFIPSOnly(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.timeout=60s",
		"-test.run=^(TestCarrierKinds)$")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
	out, err := cmd.CombinedOutput()
	if passed := regexp.MustCompile(`(?m)^--- PASS: `).FindAll(out, -1); err != nil || len(passed) != 1 {
		t.Errorf("got %d tests that pass, %v, want 1:\n%s", len(passed), err, out)
	}
}
