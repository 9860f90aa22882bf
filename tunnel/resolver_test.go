package tunnel_test

import (
	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/tunnel"
)

// One value looks names up for an agent and for a Dialer.
var (
	_ tunnel.Resolver = dialer.Resolver(nil)
	_ dialer.Resolver = tunnel.Resolver(nil)
)
