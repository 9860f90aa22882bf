package tunnel

import (
	"context"
	"net"
)

// DialTarget compiles t, and dials address as an agent would.
func (t *Targets) DialTarget(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := t.compile()
	if err != nil {
		return nil, err
	}
	return c.dial(ctx, network, address)
}

// Compile returns what DialTarget compiles for each call.
func (t *Targets) Compile() (DialFunc, error) {
	c, err := t.compile()
	if err != nil {
		return nil, err
	}
	return c.dial, nil
}
