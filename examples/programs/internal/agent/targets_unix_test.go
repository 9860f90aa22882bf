//go:build unix

package agent

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/causewayproject/causeway/internal/test/clitest"
	"github.com/causewayproject/causeway/tunnel"
)

// The targets of a file may change while the agent runs.
func TestTargetsFile(t *testing.T) {
	server, address := newServer(t)
	first, second := echo(t, "target"), echo(t, "target")
	file := filepath.Join(t.TempDir(), "targets")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--invitation", invitationFile(t, invite(t, server, address)), "--state", t.TempDir(), "--status", "127.0.0.1:0", "--allow", "file:" + file}
	if err := run(t.Context(), append(args, "--allow", "a:1"), nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "--allow: file:PATH has to be alone") {
		t.Errorf("got %v of a file beside a pattern", err)
	}
	write("# none\n")
	if err := run(t.Context(), args, nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "--allow: "+file+": there is no line") {
		t.Errorf("got %v of a file without a target", err)
	}
	write("# hosts\n " + first + " \r\n\n\t127.0.0.1:1\n#" + second)
	p := clitest.Start(t, run, nil, args...)
	p.Await(`msg=connected server=\S+ cluster=default/prod`)
	check := func(target string, allowed bool) {
		t.Helper()
		_, err := greeting(t, server, target)
		if e, _ := errors.AsType[*tunnel.Error](err); allowed != (err == nil) || !allowed && (e == nil || e.Code != tunnel.CodeDenied) {
			t.Errorf("got %v, want it allowed: %t", err, allowed)
		}
	}
	check(first, true)
	check(second, false)
	write(first + "\nnonsense")
	p.HangUpUntil(`level=WARN msg="targets: those before stay" error=.*--allow: ` + file + `: .*nonsense`)
	check(first, true)
	write(second)
	p.HangUpUntil(`msg=targets file=` + file)
	check(first, false)
	check(second, true)
}
