package tunnel

import (
	"context"
	"net"
)

// MaxUpgradeRequest bounds what a stranger's request takes.
const MaxUpgradeRequest = maxUpgradeRequest

// Upgrade answers a client's request as a WebSocket listener does that takes any
// path.
func Upgrade(ctx context.Context, conn net.Conn) (net.Conn, error) {
	s := &wsListener{admission: newAdmission(1)}
	p, err := s.admission.enter(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer p.leave()
	return s.upgrade(p, conn)
}
