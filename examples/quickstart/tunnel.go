package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// tunnelCluster is what the tunnel calls the stand-in.
const tunnelCluster = "default/quickstart"

// serveTunnel starts a tunnel to the API server at api, whose address is
// standInHost for clients: a server, an agent that dials out to it, and the
// gateway, which is an HTTP proxy. It returns the route through the gateway.
func (s *starter) serveTunnel(api string) kubeconfig.Route {
	authority, err := tunnel.NewAuthority()
	if s.err = cmp.Or(s.err, err); s.err != nil {
		return kubeconfig.Route{}
	}
	connected := make(chan struct{})
	first := sync.OnceFunc(func() { close(connected) })
	// Beside the controllers: the server, and the gateway in front of it.
	server := &tunnel.Server{Authority: authority, Grace: -1, Hooks: tunnel.Hooks{Connected: func(tunnel.SessionInfo) { first() }}}
	forAgents := s.serve(func(ctx context.Context, l net.Listener) { server.Serve(ctx, l) })
	route := s.serveGateway(server)
	if s.err != nil {
		return route
	}

	// Beside the cluster: the agent. It enrols with an invitation, and knows
	// what the server may reach.
	agent := &tunnel.Agent{
		Servers:     []string{forAgents},
		Credentials: new(tunnel.MemoryCredentials),
		Invitation: func(ctx context.Context) (tunnel.Invitation, error) {
			return server.Invite(ctx, tunnelCluster, time.Minute)
		},
		Targets: tunnel.Targets{Aliases: map[string]string{
			fmt.Sprintf("%s:%d", standInHost, standInPort): api,
		}},
		Grace: -1,
	}
	s.start(func(ctx context.Context) { agent.Run(ctx) })
	select {
	case <-connected:
	case <-time.After(attemptTimeout):
		s.err = cmp.Or(s.err, fmt.Errorf("the tunnel's agent has not connected in %v", attemptTimeout))
	}
	return route
}

// serveGateway starts the gateway, and returns the route of a client, who needs
// a ticket for the cluster.
func (s *starter) serveGateway(server *tunnel.Server) kubeconfig.Route {
	tickets := new(gateway.Tickets)
	user, ticket, err := tickets.Issue(gateway.Identity{Name: username, Cluster: tunnelCluster}, time.Minute)
	s.err = cmp.Or(s.err, err)
	doors := &gateway.Gateway{
		Authenticate: tickets.Authenticate,
		Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
			return server.Dialer(r.Cluster).DialContext(ctx, "tcp", r.Address)
		},
		Grace: -1,
	}
	address := s.serve(func(ctx context.Context, l net.Listener) { doors.ServeConnect(ctx, l) })
	return kubeconfig.Route{Tunnel: &kubeconfig.Tunnel{
		Gateway: "http://" + address, User: user, Password: ticket, Cluster: tunnelCluster,
	}}
}
