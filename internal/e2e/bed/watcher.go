package bed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const watcherRole = "bed-watcher"

// A watcher is a process that removes what a run leaves in the system, its
// namespaces and its folder, once the pipe to it closes: in Close, and when
// the test process ends in any other way. A panic in a test, the time limit of
// go test and SIGKILL run no code of ours.
type watcher struct {
	cmd    *exec.Cmd
	pipe   io.Closer
	stderr bytes.Buffer
}

func startWatcher(dir, run string) (*watcher, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("bed: start watcher: %w", err)
	}
	w := &watcher{cmd: exec.Command(self, dir, run)}
	w.cmd.Env = append(os.Environ(), RoleEnv+"="+watcherRole)
	w.cmd.Stderr = &w.stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of the terminal's interrupt
	if w.pipe, err = w.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("bed: start watcher: %w", err)
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("bed: start watcher: %w", err)
	}
	return w, nil
}

// close makes the watcher clean up and waits until it did.
func (w *watcher) close() error {
	w.pipe.Close()
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("bed: clean up: %w: %s", err, strings.TrimSpace(w.stderr.String()))
	}
	return nil
}

// watchRole is the watcher's role. Its arguments are the folder and the run's name.
func watchRole(ctx context.Context, in io.Reader, _ io.Writer) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if len(os.Args) != 3 {
		return errors.New("bed: watcher: want a folder and a run's name")
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return fmt.Errorf("bed: watcher: %w", err)
	}
	dir, run := os.Args[1], os.Args[2]
	// Processes may still write until the kernel has killed them.
	return errors.Join(
		Poll(ctx, "namespaces to go", func(ctx context.Context) error {
			return removeNamespaces(ctx, func(name string) bool { return strings.HasPrefix(name, run+"-") })
		}),
		Poll(ctx, "folder to go", func(context.Context) error { return os.RemoveAll(dir) }),
	)
}

// removeStaleFolders removes the folders of runs whose process is gone: the
// watcher itself may have been killed.
func removeStaleFolders() error {
	paths, err := filepath.Glob(filepath.Join(os.TempDir(), namePrefix+"*"))
	if err != nil {
		return fmt.Errorf("bed: list folders: %w", err)
	}
	for _, path := range paths {
		if isStale(filepath.Base(path)) {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}
