package main

import (
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

// startTunnel starts a tunnel to the API server at api, whose address is
// standInHost for clients: a server, an agent that dials out to it, and the
// gateway, which is an HTTP proxy. It returns the route through the gateway,
// and what stops all three.
func startTunnel(api string) (_ kubeconfig.Route, stop func(), err error) {
	var route kubeconfig.Route
	authority, err := tunnel.NewAuthority()
	if err != nil {
		return route, nil, err
	}
	var s starter
	forAgents, forClients := s.listen(), s.listen()
	if s.err != nil {
		return route, nil, s.err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	stop = func() {
		cancel()
		running.Wait()
	}

	// Beside the controllers: the server, and the gateway in front of it.
	connected := make(chan struct{}, 1)
	server := &tunnel.Server{Authority: authority, Grace: -1, Hooks: tunnel.Hooks{
		Connected: func(tunnel.SessionInfo) {
			select {
			case connected <- struct{}{}:
			default: // connected once already
			}
		},
	}}
	running.Go(func() { server.Serve(ctx, forAgents) })
	tickets := new(gateway.Tickets)
	doors := &gateway.Gateway{
		Authenticate: tickets.Authenticate,
		Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
			return server.Dialer(r.Cluster).DialContext(ctx, "tcp", r.Address)
		},
		Grace: -1,
	}
	running.Go(func() { doors.ServeConnect(ctx, forClients) })

	// Beside the cluster: the agent. It enrols with an invitation, and knows
	// what the server may reach.
	agent := &tunnel.Agent{
		Servers:     []string{forAgents.Addr().String()},
		Credentials: new(tunnel.MemoryCredentials),
		Invitation: func(ctx context.Context) (tunnel.Invitation, error) {
			return server.Invite(ctx, tunnelCluster, time.Minute)
		},
		Targets: tunnel.Targets{Aliases: map[string]string{
			fmt.Sprintf("%s:%d", standInHost, standInPort): api,
		}},
		Grace: -1,
	}
	running.Go(func() { agent.Run(ctx) })
	select {
	case <-connected:
	case <-time.After(attemptTimeout):
		stop()
		return route, nil, fmt.Errorf("the tunnel's agent has not connected in %v", attemptTimeout)
	}

	// A client needs a ticket for the cluster.
	user, ticket, err := tickets.Issue(gateway.Identity{Name: username, Cluster: tunnelCluster}, time.Minute)
	if err != nil {
		stop()
		return route, nil, err
	}
	route.Tunnel = &kubeconfig.Tunnel{
		Gateway: "http://" + forClients.Addr().String(), User: user, Password: ticket, Cluster: tunnelCluster,
	}
	return route, stop, nil
}
