package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

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
