package gateway

import (
	"net"

	"github.com/causewayproject/causeway/internal/group"
)

func (g *Gateway) socks5(*group.Group, net.Conn) {}
func (g *Gateway) sni(*group.Group, net.Conn)    {}
