package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

// A request is a line of JSON on a role's standard input, a reply one on its
// standard output. There is one at a time.
type request struct {
	Op   string
	Args json.RawMessage `json:",omitempty"`
}

type reply struct {
	Err   string          `json:",omitempty"`
	Value json.RawMessage `json:",omitempty"`
}

// An op is what a role does when it is asked to.
type op func(ctx context.Context, args json.RawMessage) (any, error)

// handler returns an op with arguments of type A and a value of type V.
func handler[A, V any](f func(context.Context, A) (V, error)) op {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var args A
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &args); err != nil {
				return nil, err
			}
		}
		return f(ctx, args)
	}
}

type none struct{}

// A role is one of the processes. Close ends all that it started.
type role interface {
	ops() map[string]op
	io.Closer
}

func newRole(name string) (role, error) {
	switch name {
	case "replica":
		return newReplica(), nil
	case "agents":
		return newAgents(), nil
	}
	return nil, fmt.Errorf("scale: there is no role %q", name)
}

// closeTimeout is how long a role may take to end.
const closeTimeout = 10 * time.Second

// playRole answers requests until the input ends.
func playRole(name string, in io.Reader, out io.Writer) error {
	r, err := newRole(name)
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := rig.RaiseFiles(wantedFiles); err != nil {
		return fmt.Errorf("scale: open files: %w", err)
	}
	ops := r.ops()
	ops["usage"], ops["profile"], ops["heap"] = handler(ownUsage), handler(profile), handler(heapProfile)
	err = rig.Serve(in, out, closeTimeout, func(ctx context.Context, q request) reply { return answerRequest(ctx, ops, q) })
	if err != nil {
		return fmt.Errorf("scale: %s: %w", name, err)
	}
	return nil
}

func answerRequest(ctx context.Context, ops map[string]op, q request) (a reply) {
	f := ops[q.Op]
	if f == nil {
		return reply{Err: fmt.Sprintf("there is no request %q", q.Op)}
	}
	v, err := f(ctx, q.Args)
	if err == nil {
		a.Value, err = json.Marshal(v)
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

func profile(_ context.Context, path string) (none, error) { return none{}, rig.Profile(path) }

// heapProfile writes a profile of the memory in use to the file.
func heapProfile(_ context.Context, path string) (none, error) {
	f, err := os.Create(path)
	if err != nil {
		return none{}, err
	}
	return none{}, errors.Join(pprof.WriteHeapProfile(f), f.Close())
}

// roleEnv names the role that a process is started for.
const roleEnv = "CAUSEWAY_SCALE_ROLE"

// A process is a role that runs.
type process struct {
	name string
	*rig.Child[request, reply]
}

// startProcess runs this program in a role.
func startProcess(role, name string) (*process, error) {
	c, err := rig.Start[request, reply](roleEnv, role)
	if err != nil {
		return nil, fmt.Errorf("scale: %s: %w", name, err)
	}
	return &process{name, c}, nil
}

// call asks it, as Child.Ask does, and stores the reply's value in value unless
// that is nil.
func (p *process) call(ctx context.Context, op string, args, value any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("scale: %s: %s: %w", p.name, op, err)
	}
	r, err := p.Ask(ctx, request{Op: op, Args: raw})
	switch {
	case err != nil:
		return fmt.Errorf("scale: %s: %s: %w", p.name, op, err)
	case r.Err != "":
		return fmt.Errorf("scale: %s: %s: %s", p.name, op, r.Err)
	case value != nil:
		return json.Unmarshal(r.Value, value)
	}
	return nil
}

func (p *process) stop() { p.Stop(2 * closeTimeout) }
