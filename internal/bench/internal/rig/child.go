// Package rig is the base of the benchmarks here: the test's program again, in
// processes of their own that play roles, and the system's figures about them.
package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"
)

// roleEnv names the role that a process is started for.
const roleEnv = "CAUSEWAY_BENCH_ROLE"

// None is what a method takes or returns that has nothing to say.
type None = struct{}

// Play plays a role if this process was started for one, and does not return
// then: net/rpc calls the role's methods until the input ends, since whoever
// started this process is then gone, or wants it to go. Then the role is closed.
// A process that takes longer than patience to end is ended.
func Play(roles map[string]io.Closer, patience time.Duration) {
	name := os.Getenv(roleEnv)
	if name == "" {
		return
	}
	if err := playRole(roles[name], patience); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func playRole(role io.Closer, patience time.Duration) error {
	// ^C reaches the whole group: the first process ends the others in order.
	signal.Ignore(syscall.SIGINT)
	s := rpc.NewServer()
	if err := s.RegisterName("Role", role); err != nil {
		return err
	}
	s.ServeCodec(jsonrpc.NewServerCodec(stream{requests{patience}, os.Stdout}))
	return role.Close()
}

// requests is the standard input.
type requests struct{ patience time.Duration }

func (r requests) Read(b []byte) (int, error) {
	n, err := os.Stdin.Read(b)
	if err != nil {
		time.AfterFunc(r.patience, func() { os.Exit(1) })
	}
	return n, err
}

type stream struct {
	io.Reader
	io.WriteCloser
}

// A Child is a process that plays a role.
type Child struct {
	Name     string
	cmd      *exec.Cmd
	client   *rpc.Client
	wait     func() error
	patience time.Duration
}

// Start starts one, which may take so long to end. What it says on its standard
// error is said on this process's. The caller calls Stop.
func Start(role string, patience time.Duration) (*Child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	client := jsonrpc.NewClient(stream{out, in})
	return &Child{role, cmd, client, sync.OnceValue(cmd.Wait), patience}, nil
}

// Call calls a method of the role. When ctx ends first it kills the process.
func (c *Child) Call(ctx context.Context, method string, args, reply any) error {
	call := c.client.Go("Role."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if call.Error != nil {
			return fmt.Errorf("%s: %s: %w", c.Name, method, call.Error)
		}
		return nil
	case <-ctx.Done():
		c.cmd.Process.Kill()
		return fmt.Errorf("%s: %s: %w", c.Name, method, ctx.Err())
	}
}

// Stop ends the process, and returns how it ended.
func (c *Child) Stop() error {
	c.client.Close()
	kill := time.AfterFunc(2*c.patience, func() { c.cmd.Process.Kill() })
	defer kill.Stop()
	if err := c.wait(); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// Kill ends the process, which has no time for anything, and waits for it.
func (c *Child) Kill() {
	c.cmd.Process.Kill()
	c.Stop()
}

// Poll calls done until it reports true, or an error, which it returns.
func Poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Percentile returns the value that p percent of values are below, or zero without
// values. It does not change their order.
func Percentile[T cmp.Ordered](values []T, p int) (v T) {
	if len(values) == 0 {
		return v
	}
	return slices.Sorted(slices.Values(values))[min(len(values)*p/100, len(values)-1)]
}

// Echo writes a byte and reads it back: the whole way is up.
func Echo(conn io.ReadWriter, b byte) error {
	if _, err := conn.Write([]byte{b}); err != nil {
		return err
	}
	return Expect(conn, b)
}

// Expect reads a byte.
func Expect(conn io.Reader, want byte) error {
	var got [1]byte
	if _, err := io.ReadFull(conn, got[:]); err != nil {
		return err
	}
	if got[0] != want {
		return errors.New("another byte came back")
	}
	return nil
}
