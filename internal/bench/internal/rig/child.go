// Package rig is the base of the programs here: child processes that answer
// requests, the system's figures about them, and files for the results.
package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"
)

// Main is the main of a program: it plays the role that the variable names, or
// does the command, whose context an interrupt ends. It does not return.
func Main(variable string, play func(role string, in io.Reader, out io.Writer) error, command func(context.Context) error) {
	var err error
	if role := os.Getenv(variable); role != "" {
		err = play(role, os.Stdin, os.Stdout)
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = command(ctx)
		stop()
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A Child is this program once more, in a process of its own: it is asked by
// lines of JSON on its standard input and answers on its standard output. Its
// methods are safe for concurrent use.
type Child[Q, R any] struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	stderr  head   // is written to until replies is closed
	replies chan R // closed when the process has ended

	asking sync.Mutex // one request at a time
}

// Start starts one that has the variable in its environment. The caller calls
// Stop or Kill.
func Start[Q, R any](variable, value string) (*Child[Q, R], error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Child[Q, R]{cmd: exec.Command(exe), replies: make(chan R, 1)}
	c.cmd.Env = append(os.Environ(), variable+"="+value)
	c.cmd.Stderr = &c.stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.read(out)
	return c, nil
}

// read ends with the process.
func (c *Child[Q, R]) read(out io.Reader) {
	defer close(c.replies)
	d := json.NewDecoder(out)
	for {
		var r R
		if d.Decode(&r) != nil {
			break
		}
		c.replies <- r
	}
	io.Copy(io.Discard, out)
	c.cmd.Wait()
}

// Ask sends a request and waits for the reply. When ctx ends first the process
// can't be used any more: its next reply would be to this request.
func (c *Child[Q, R]) Ask(ctx context.Context, q Q) (r R, err error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	if err := json.NewEncoder(c.in).Encode(q); err != nil {
		return r, err
	}
	select {
	case r, ok := <-c.replies:
		if !ok {
			return r, fmt.Errorf("the process ended: %s", c.stderr.b)
		}
		return r, nil
	case <-ctx.Done():
		c.cmd.Process.Kill()
		return r, ctx.Err()
	}
}

// Stop ends the process, which may take so long to end what it started, and
// waits for it.
func (c *Child[Q, R]) Stop(patience time.Duration) {
	c.in.Close()
	kill := time.AfterFunc(patience, func() { c.cmd.Process.Kill() })
	defer kill.Stop()
	for range c.replies { // to a request that was given up
	}
}

// Kill ends the process, which has no time for anything, and waits for it.
func (c *Child[Q, R]) Kill() {
	c.cmd.Process.Kill()
	c.Stop(0)
}

// Serve is the child's side: it answers until the input ends, since whoever
// started this process is then gone, or wants it to go. That ends the context,
// even during a request, and after patience the process: it is not to wait for a
// peer's Close for longer.
func Serve[Q, R any](in io.Reader, out io.Writer, patience time.Duration, answer func(context.Context, Q) R) error {
	// ^C reaches the whole group: the first process ends the others in order.
	signal.Ignore(syscall.SIGINT)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	requests := make(chan Q)
	go func() {
		defer cancel()
		defer close(requests)
		d := json.NewDecoder(bufio.NewReader(in))
		for {
			var q Q
			if d.Decode(&q) != nil {
				time.AfterFunc(patience, func() { os.Exit(1) })
				return
			}
			requests <- q
		}
	}()
	w := json.NewEncoder(out)
	for q := range requests {
		if err := w.Encode(answer(ctx, q)); err != nil {
			return err
		}
	}
	return nil
}

// Profile writes a CPU profile to the file until it is called with none. The
// file ends with the process.
func Profile(path string) error {
	if path == "" {
		pprof.StopCPUProfile()
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f)
}

// A head keeps the first bytes that are written to it: a program's last words are
// short, and a panic's output begins with the reason.
type head struct{ b []byte }

const headSize = 4 << 10

func (h *head) Write(p []byte) (int, error) {
	h.b = append(h.b, p[:min(len(p), headSize-len(h.b))]...)
	return len(p), nil
}
