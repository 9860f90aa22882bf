package carrier

import (
	"context"
	"net"

	"github.com/causewayproject/causeway/internal/admission"
)

// MaxUpgradeRequest bounds what a stranger's request takes.
const MaxUpgradeRequest = maxUpgradeRequest

// Upgrade answers a client's request as a WebSocket listener does that takes any
// path.
func Upgrade(ctx context.Context, conn net.Conn) (net.Conn, error) {
	s := &wsListener{admission: admission.New(1, 0)}
	p, err := s.admission.Enter(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer p.Leave()
	return s.upgrade(p, conn)
}
