package tunnel

import (
	"context"
	"net"
)

// DialTarget compiles t, and dials address as an agent would.
func (t *Targets) DialTarget(ctx context.Context, network, address string) (net.Conn, error) {
	policy, err := t.compile()
	if err != nil {
		return nil, err
	}
	return dialTarget(ctx, policy, network, address)
}
