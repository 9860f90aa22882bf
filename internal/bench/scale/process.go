package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// roleEnv names the role that a process is started for.
const roleEnv = "CAUSEWAY_SCALE_ROLE"

// A process is a role that runs.
type process struct {
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	stderr  *head
	replies chan reply // closed when the process has ended

	calling sync.Mutex // one request at a time
}

// startProcess runs this program in a role.
func startProcess(role, name string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("scale: %s: %w", name, err)
	}
	p := &process{name: name, stderr: &head{}, replies: make(chan reply, 1)}
	p.cmd = exec.Command(exe)
	p.cmd.Env = append(os.Environ(), roleEnv+"="+role)
	p.cmd.Stderr = p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("scale: %s: %w", name, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("scale: %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("scale: %s: %w", name, err)
	}
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

// call sends a request and waits for the reply, whose value it stores in value
// unless that is nil. When ctx ends first the process is of no more use: its
// next reply would be to this request.
func (p *process) call(ctx context.Context, op string, args, value any) error {
	p.calling.Lock()
	defer p.calling.Unlock()
	raw, err := json.Marshal(args)
	if err == nil {
		err = json.NewEncoder(p.in).Encode(request{Op: op, Args: raw})
	}
	if err != nil {
		return fmt.Errorf("scale: %s: %s: %w", p.name, op, err)
	}
	select {
	case r, ok := <-p.replies:
		switch {
		case !ok:
			return fmt.Errorf("scale: %s: %s: the process ended: %s", p.name, op, p.stderr)
		case r.Err != "":
			return fmt.Errorf("scale: %s: %s: %s", p.name, op, r.Err)
		case value != nil:
			return json.Unmarshal(r.Value, value)
		}
		return nil
	case <-ctx.Done():
		p.cmd.Process.Kill()
		return fmt.Errorf("scale: %s: %s: %w", p.name, op, ctx.Err())
	}
}

// stop ends the process and waits for it.
func (p *process) stop() {
	p.in.Close()
	kill := time.AfterFunc(2*closeTimeout, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	p.wait()
}

// kill ends the process, which has no time for anything, and waits for it.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.in.Close()
	p.wait()
}

func (p *process) wait() {
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
