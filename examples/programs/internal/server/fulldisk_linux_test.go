package server

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/causewayproject/causeway/internal/test/clitest"
)

// A server starts on a full disk if it has nothing new to write. The test mounts a small
// disk, in namespaces of its own.
func TestFullDisk(t *testing.T) {
	const inside = "CAUSEWAY_TEST_FULL_DISK"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestFullDisk")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k,mode=700"); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(disk, 0)
	args := []string{"--state", disk, "--listen", "127.0.0.1:0", "--status=", "--connect", "127.0.0.1:0", "--advertise", "tunnel.example.com:8443"}
	start := func() {
		t.Helper()
		p := clitest.Start(t, run, nil, args...)
		p.Await("for=listen")
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	start()
	if err := os.WriteFile(filepath.Join(disk, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want a full disk", err)
	}
	start()
	args[len(args)-1] = "other.example.com:8443" // that can't be saved
	if err := run(t.Context(), args, nil, io.Discard, io.Discard); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "--state") {
		t.Errorf("got %v, want an error of --state", err)
	}
}
