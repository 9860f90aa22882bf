package tunnel

import (
	"context"
	"net"

	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// TellServers has the server say which servers run, as it does when a replica
// comes or goes.
func (s *Server) TellServers(names ...string) error {
	if err := s.setup(); err != nil {
		return err
	}
	s.announcing.Lock()
	defer s.announcing.Unlock()
	s.announced = names
	m := wire.New(wire.MsgServers).AddStrings(wire.TagServer, names)
	for _, sess := range s.registry.allSessions() {
		sess.sendOrClose(m)
	}
	return nil
}

// ServeGreeted serves an agent's carrier until it ends, and calls between when
// the WELCOME is made and the session is not registered.
func (s *Server) ServeGreeted(ctx context.Context, conn net.Conn, between func()) error {
	g := group.New(ctx)
	defer g.Drain(ctx) // the session stays in it
	c, err := carrier.Server(ctx, conn, s.registrar.serverTLS())
	if err != nil {
		return err
	}
	sess, err := s.acceptAgent(ctx, g, c)
	if err != nil {
		return err
	}
	between()
	s.serveSession(sess)
	return nil
}

// ServerNames are those that an agent takes from a message.
func ServerNames(names ...string) []string {
	return serverNames(wire.New(wire.MsgServers).AddStrings(wire.TagServer, names))
}
