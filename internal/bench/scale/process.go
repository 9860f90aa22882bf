package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

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
