package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Command is a program to run in a namespace until it ends.
type Command struct {
	Argv  []string
	Env   []string  // beside PATH and HOME, which is a folder of the bed; nothing else is inherited
	Stdin io.Reader // nil is empty
}

// A Running is a Command that was started.
type Running struct {
	cmd    *exec.Cmd
	stdout buffer
	stderr buffer
	done   chan struct{} // closed once it ended; err is set before
	err    error
}

// Start starts a command; it is killed when ctx or the bed ends. The caller
// ends it with Stop or Wait.
func (n *Namespace) Start(ctx context.Context, c Command) (*Running, error) {
	r := &Running{done: make(chan struct{})}
	r.cmd = exec.CommandContext(ctx, programPath("ip"), append([]string{"netns", "exec", n.Name}, c.Argv...)...)
	r.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + n.run.dir}, c.Env...)
	r.cmd.Dir = n.run.dir
	r.cmd.Stdin = c.Stdin
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	r.cmd.WaitDelay = stopTimeout
	if err := n.run.start(r.cmd); err != nil {
		return nil, fmt.Errorf("bed: start %s: %w", c.Argv[0], err)
	}
	go r.wait()
	return r, nil
}

func (r *Running) wait() {
	if err := r.cmd.Wait(); err != nil {
		r.err = fmt.Errorf("bed: %s: %w\n%s", strings.Join(r.cmd.Args[4:], " "), err, r.stderr.String())
	}
	close(r.done)
}

// Wait waits for the command's end. The error has what it wrote to its
// standard error. A command that has not ended by itself after waitTimeout is
// told to quit: a Go program then writes where its goroutines are.
func (r *Running) Wait() error {
	select {
	case <-r.done:
		return r.err
	case <-time.After(waitTimeout):
	}
	r.Signal(syscall.SIGQUIT)
	select {
	case <-r.done:
	case <-time.After(stopTimeout):
		r.Stop()
	}
	return errors.Join(fmt.Errorf("bed: %s: no end within %v", strings.Join(r.cmd.Args[4:], " "), waitTimeout), r.err)
}

// Ended returns nil while the command runs, and an error with what it wrote to
// its standard error when it has ended, in whatever way.
func (r *Running) Ended() error {
	select {
	case <-r.done:
		return fmt.Errorf("bed: %s has ended: %v\n%s", strings.Join(r.cmd.Args[4:], " "), r.cmd.ProcessState, r.stderr.String())
	default:
		return nil
	}
}

// PeakMemory returns the most memory that the command has had, in bytes.
func (r *Running) PeakMemory() (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("bed: memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); err == nil {
			return kilobytes << 10, nil
		}
	}
	return 0, errors.New("bed: memory: the kernel does not tell it")
}

// Stop kills the command and waits for its end.
func (r *Running) Stop() {
	r.cmd.Process.Kill()
	<-r.done
}

// Signal sends the command a signal.
func (r *Running) Signal(s os.Signal) error { return r.cmd.Process.Signal(s) }

// Stdout returns what the command has printed so far.
func (r *Running) Stdout() string { return r.stdout.String() }

// Stderr returns what the command has written to its standard error so far.
func (r *Running) Stderr() string { return r.stderr.String() }

// WaitFor waits until the command has printed text.
func (r *Running) WaitFor(ctx context.Context, text string) error {
	return Poll(ctx, fmt.Sprintf("%q in the output", text), func(context.Context) error {
		if strings.Contains(r.Stdout(), text) {
			return nil
		}
		if err := r.Ended(); err != nil {
			return Stop(fmt.Errorf("%w; it printed %q", err, r.Stdout()))
		}
		return fmt.Errorf("it printed %q, and as errors %q", r.Stdout(), r.stderr.String())
	})
}

// Run runs a command to its end and returns what it printed.
func (n *Namespace) Run(ctx context.Context, c Command) (string, error) {
	r, err := n.Start(ctx, c)
	if err != nil {
		return "", err
	}
	err = r.Wait()
	return r.Stdout(), err
}

// RoleEnv names the environment variable that makes the test binary play a
// role instead of running tests.
const RoleEnv = "CAUSEWAY_E2E_ROLE"

// A Role is a part that the test binary plays in a namespace, in a process of
// its own. It reads its input from in and writes its answer to out.
type Role func(ctx context.Context, in io.Reader, out io.Writer) error

// PlayRole plays the role that the environment names and returns the exit
// code; ok is false when it names none. TestMain calls it before anything else.
func PlayRole(roles map[string]Role) (code int, ok bool) {
	name := os.Getenv(RoleEnv)
	if name == "" {
		return 0, false
	}
	role := roles[name]
	err := fmt.Errorf("there is no role %q", name)
	if role != nil {
		err = role(context.Background(), os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// RoleCommand returns the command that plays a role of the test binary with in
// as its input, in JSON.
func RoleCommand(role string, in any, env ...string) (Command, error) {
	self, err := os.Executable()
	if err != nil {
		return Command{}, fmt.Errorf("bed: role %s: %w", role, err)
	}
	input, err := json.Marshal(in)
	if err != nil {
		return Command{}, fmt.Errorf("bed: role %s: encode input: %w", role, err)
	}
	return Command{
		Argv: []string{self},
		// A program under the race detector sleeps a second before it exits.
		Env:   append([]string{RoleEnv + "=" + role, "GORACE=atexit_sleep_ms=0"}, env...),
		Stdin: strings.NewReader(string(input)),
	}, nil
}

// Play plays a role in the namespace and decodes its answer, in JSON, to out.
func (n *Namespace) Play(ctx context.Context, role string, in, out any, env ...string) error {
	c, err := RoleCommand(role, in, env...)
	if err != nil {
		return err
	}
	answer, err := n.Run(ctx, c)
	if err != nil {
		return fmt.Errorf("bed: role %s: %w", role, err)
	}
	if err := json.Unmarshal([]byte(answer), out); err != nil {
		return fmt.Errorf("bed: role %s: decode answer %q: %w", role, answer, err)
	}
	return nil
}

// buffer is a bytes.Buffer that can be read while it is written to.
type buffer struct {
	mu sync.Mutex // guards the field below
	b  []byte
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b = append(b.b, p...)
	return len(p), nil
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.b)
}

// A Container is a program that sees only the files of its image, which it
// can't write to. Neither it nor what it starts becomes root.
type Container struct {
	Root      string // directory of the image
	Argv, Env []string
	User      int64
	Group     int64
	Stdin     io.Reader // nil is empty
}

// The mount is in a namespace that `ip netns exec` makes, and ends with the
// program.
const containerScript = `set -e
root=$1 user=$2
shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs --bounding-set=-all,+sys_chroot,+setuid,+setgid -- chroot --userspec="$user" --groups="${user#*:}" "$root" "$@"`

// StartContainer starts a container in the namespace; it is killed when ctx or
// the bed ends.
func (n *Namespace) StartContainer(ctx context.Context, c Container) (*Running, error) {
	user := strconv.FormatInt(c.User, 10) + ":" + strconv.FormatInt(c.Group, 10)
	argv := []string{"/bin/sh", "-c", containerScript, "container", c.Root, user}
	if c.User == 0 || len(c.Argv) == 0 {
		return nil, fmt.Errorf("bed: container: user %d, command %q", c.User, c.Argv)
	}
	return n.Start(ctx, Command{Argv: append(argv, c.Argv...), Env: c.Env, Stdin: c.Stdin})
}
