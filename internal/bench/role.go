package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// A request is a line of JSON on a role's standard input.
type request struct {
	Op      string
	Row     string
	Setup   setup
	Addr    string // whom to connect to; a profile's file, "" at its end
	N       int    // streams, agents
	Size    int64  // bytes of a stream
	Dials   int
	Trips   int
	Tidy    bool
	Line    line
	Timeout time.Duration
}

// A reply is a line of JSON on its standard output.
type reply struct {
	Err   string          `json:",omitempty"`
	Addr  string          `json:",omitempty"`
	N     int64           `json:",omitempty"`
	Took  time.Duration   `json:",omitempty"`
	Dials []time.Duration `json:",omitempty"`
	Trips []time.Duration `json:",omitempty"`
	Usage usage           `json:",omitzero"`
}

// A role is one of the processes. Close ends all that it started.
type role interface {
	handleRequest(ctx context.Context, r request) (reply, error)
	io.Closer
}

func newRole(name string) (role, error) {
	switch name {
	case "target":
		return &targetRole{}, nil
	case "agent":
		return &agentRole{}, nil
	case "server":
		return &serverRole{}, nil
	case "client":
		return &clientRole{}, nil
	case "link":
		return &linkRole{}, nil
	}
	return nil, fmt.Errorf("bench: there is no role %q", name)
}

// closeTimeout is how long a role may take to end.
const closeTimeout = 3 * time.Second

// playRole answers requests until the input ends.
func playRole(name string, in io.Reader, out io.Writer) error {
	r, err := newRole(name)
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := rig.RaiseFiles(0); err != nil {
		return fmt.Errorf("bench: open files: %w", err)
	}
	err = rig.Serve(in, out, closeTimeout, func(gone context.Context, q request) reply { return answerRequest(gone, r, q) })
	if err != nil {
		return fmt.Errorf("bench: %s: %w", name, err)
	}
	return nil
}

func answerRequest(ctx context.Context, r role, q request) reply {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	var a reply
	var err error
	switch q.Op {
	case "usage":
		if a.Usage, err = roleUsage(r, q.Tidy); err != nil {
			err = fmt.Errorf("bench: usage: %w", err)
		}
	case "reset":
		err = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	case "profile":
		if err = rig.Profile(q.Addr); err != nil {
			err = fmt.Errorf("bench: profile: %w", err)
		}
	default:
		a, err = r.handleRequest(ctx, q)
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

func roleUsage(r role, tidy bool) (usage, error) {
	if p, ok := r.(parent); ok {
		if pids := p.childPIDs(); pids != nil {
			return childrenUsage(pids)
		}
	}
	return ownUsage(tidy)
}

var errOp = errors.New("bench: there is no such request")

// A process is a role that runs.
type process struct {
	name string
	*rig.Child[request, reply]
}

// startProcess runs this program in a role.
func startProcess(name string) (*process, error) {
	c, err := rig.Start[request, reply](roleEnv, name)
	if err != nil {
		return nil, fmt.Errorf("bench: %s: %w", name, err)
	}
	return &process{name, c}, nil
}

// call asks it, as Child.Ask does.
func (p *process) call(ctx context.Context, q request) (reply, error) {
	q.Timeout = time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		q.Timeout = time.Until(deadline)
	}
	r, err := p.Ask(ctx, q)
	if err != nil {
		return r, fmt.Errorf("bench: %s: %s: %w", p.name, q.Op, err)
	}
	if r.Err != "" {
		return r, fmt.Errorf("%s: %s: %s", p.name, q.Op, r.Err)
	}
	return r, nil
}

// roleEnv names the role that a process is started for.
const roleEnv = "CAUSEWAY_BENCH_ROLE"

var errUnbounded = errors.New("bench: its memory grew past the limit")
