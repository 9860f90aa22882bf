package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// A process is a role that runs.
type process struct {
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	stderr  *head
	replies chan reply // closed when the process has ended
}

// startProcess runs this program in a role.
func startProcess(name string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("bench: %s: %w", name, err)
	}
	p := &process{name: name, stderr: &head{}, replies: make(chan reply, 1)}
	p.cmd = exec.Command(exe)
	p.cmd.Env = append(os.Environ(), roleEnv+"="+name)
	p.cmd.Stderr = p.stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("bench: %s: %w", name, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("bench: %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("bench: %s: %w", name, err)
	}
	p.in = in
	go p.read(out)
	return p, nil
}

// read ends with the process.
func (p *process) read(out io.Reader) {
	defer close(p.replies)
	d := json.NewDecoder(out)
	for {
		var r reply
		if d.Decode(&r) != nil {
			break
		}
		p.replies <- r
	}
	io.Copy(io.Discard, out)
	p.cmd.Wait()
}

// call sends a request and waits for the reply. When ctx ends first the process
// is of no more use: its next reply would be to this request.
func (p *process) call(ctx context.Context, q request) (reply, error) {
	q.Timeout = time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		q.Timeout = time.Until(deadline)
	}
	if err := json.NewEncoder(p.in).Encode(q); err != nil {
		return reply{}, fmt.Errorf("bench: %s: %s: %w", p.name, q.Op, err)
	}
	select {
	case r, ok := <-p.replies:
		if !ok {
			return r, fmt.Errorf("bench: %s: %s: the process ended: %s", p.name, q.Op, p.stderr)
		}
		if r.Err != "" {
			return r, fmt.Errorf("%s: %s: %s", p.name, q.Op, r.Err)
		}
		return r, nil
	case <-ctx.Done():
		p.cmd.Process.Kill()
		return reply{}, fmt.Errorf("bench: %s: %s: %w", p.name, q.Op, ctx.Err())
	}
}

// stop ends the process and waits for it.
func (p *process) stop() {
	p.in.Close()
	kill := time.AfterFunc(2*closeTimeout, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	for range p.replies { // of a call that was given up
	}
}

// A head keeps the first bytes that are written to it: what a program says
// before it dies is short, what it says when it panics begins with the reason.
type head struct{ b []byte }

const headSize = 4 << 10

func (h *head) Write(p []byte) (int, error) {
	h.b = append(h.b, p[:min(len(p), headSize-len(h.b))]...)
	return len(p), nil
}

func (h *head) String() string { return string(h.b) }

// roleEnv names the role that a process is started for.
const roleEnv = "CAUSEWAY_BENCH_ROLE"

var errUnbounded = errors.New("bench: its memory grew past the limit")
