package bed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A runner starts the children of a bed, all from one OS thread that lives as
// long as the bed: the kernel sends a child its parent-death signal when the
// thread that forked it ends, not the process.
type runner struct {
	dir  string // logs, one file a process
	jobs chan func()
	done chan struct{}

	open context.Context // until close
	quit context.CancelFunc

	mu        sync.Mutex // guards the fields below
	processes []*Process
}

func newRunner(dir string) *runner {
	r := &runner{dir: dir, jobs: make(chan func()), done: make(chan struct{})}
	r.open, r.quit = context.WithCancel(context.Background())
	go r.loop()
	return r
}

func (r *runner) loop() {
	defer close(r.done)
	runtime.LockOSThread() // not unlocked: see runner
	for {
		select {
		case job := <-r.jobs:
			job()
		case <-r.open.Done():
			return
		}
	}
}

// start starts cmd so that it dies with this process. Its process group is its
// own: an interrupt at the terminal is ours to handle.
func (r *runner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = cmp.Or(cmd.SysProcAttr, &syscall.SysProcAttr{})
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	result := make(chan error, 1)
	select {
	case r.jobs <- func() { result <- cmd.Start() }:
		return <-result
	case <-r.open.Done():
		return errors.New("bed: the bed is closed")
	}
}

// close stops the processes, the newest first, and the runner.
func (r *runner) close() {
	r.mu.Lock()
	processes := r.processes
	r.mu.Unlock()
	for i := len(processes) - 1; i >= 0; i-- {
		processes[i].Stop()
	}
	r.quit()
	<-r.done
}

// A Process is a long-lived program in a namespace.
type Process struct {
	name string
	log  string // path of its output
	cmd  *exec.Cmd
	done chan struct{} // closed once it ended; err is set before
	err  error
}

// A server that gives up root loses its parent-death signal on the way, and
// its helpers never had one. So each process gets a PID namespace whose init
// is this script, which keeps the signal: when it dies, the kernel kills all
// that is inside. It passes SIGTERM on; fd 3 is the standard input, which sh
// would take away from a background command.
const initScript = `exec 3<&0
trap 'kill -TERM $child 2>/dev/null' TERM
"$@" <&3 3<&- &
child=$!
wait $child
code=$?
while kill -0 $child 2>/dev/null; do wait $child; code=$?; done
exit $code`

// start runs a program in the namespace until Stop, or until the bed ends.
func (n *Namespace) start(name string, argv ...string) (*Process, error) {
	logPath := filepath.Join(n.run.dir, name+".log")
	out, err := os.Create(logPath)
	if err != nil {
		return nil, fmt.Errorf("bed: start %s: %w", name, err)
	}
	defer out.Close() // the child has its own copy
	args := append([]string{"-c", initScript, name, programPath("ip"), "netns", "exec", n.Name}, argv...)
	p := &Process{name: name, log: logPath, cmd: exec.Command("/bin/sh", args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Dir = n.run.dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := n.run.start(p.cmd); err != nil {
		return nil, fmt.Errorf("bed: start %s: %w", name, err)
	}
	go p.wait()
	n.run.mu.Lock()
	n.run.processes = append(n.run.processes, p)
	n.run.mu.Unlock()
	return p, nil
}

func (p *Process) wait() {
	p.err = p.cmd.Wait()
	close(p.done)
}

// exitError returns nil while the process runs, and what it said when it ended.
func (p *Process) exitError() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %v; its output:\n%s", p.name, p.err, tail(p.log))
	default:
		return nil
	}
}

// Stop ends the process and waits for its end: SIGTERM first, SIGKILL after a
// bound. It may be called again, and for a process that was never started, nil.
func (p *Process) Stop() {
	if p == nil {
		return
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		p.cmd.Process.Kill()
		<-p.done
	}
}

// tail returns the last part of a log.
func tail(path string) string {
	const limit = 4 << 10
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-limit):])
}

// logLines returns the complete lines of a log, none while it does not exist.
func logLines(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bed: read log: %w", err)
	}
	lines := strings.Split(string(b), "\n")
	return lines[:len(lines)-1], nil
}

// programPath returns the path of a system program. The folders of the
// administrator's programs are not in everybody's PATH.
func programPath(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return name
}

// runOutput runs a program outside of the namespaces and returns what it printed.
func runOutput(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, programPath(name), args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("bed: run %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
