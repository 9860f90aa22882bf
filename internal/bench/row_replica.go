package main

import (
	"context"
	"fmt"
	"net"

	"github.com/causewayproject/causeway/tunnel"
)

// replicaRow is causeway where clients come to a replica that has no agent: its
// dials go by the one that has. Both are in the server's process.
var replicaRow = row{
	name:       "replica",
	about:      "causeway through a second replica, which the clients dial",
	newAgent:   newCausewayAgent,
	newServer:  newReplicaServer,
	idleAgents: 200,
}

type replicaServer struct {
	*causewayServer // the one with the agents
	near            *tunnel.Server
	served          chan error
}

func newReplicaServer(s *setup) (server, error) {
	far, err := newCausewayServer(s)
	if err != nil {
		return nil, err
	}
	r := &replicaServer{causewayServer: far.(*causewayServer), served: make(chan error, 1)}
	r.near = &tunnel.Server{
		Authority:  r.server.Authority,
		Store:      r.server.Store,
		MaxStreams: r.server.MaxStreams,
		Peers:      tunnel.StaticPeers{r.addr()},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.causewayServer.Close()
		return nil, fmt.Errorf("bench: %w", err)
	}
	go func() { r.served <- r.near.Serve(context.Background(), l) }()
	return r, nil
}

func (r *replicaServer) dial(ctx context.Context) (net.Conn, error) {
	return r.near.Dialer(causewayCluster).DialContext(ctx, "tcp", r.target)
}

func (r *replicaServer) Close() error {
	r.near.Close()
	<-r.served
	return r.causewayServer.Close()
}
