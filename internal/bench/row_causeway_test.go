package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	joined "github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/tunnel"
)

// causewayRow is what users run: package tunnel with its defaults, policies,
// enrolment and all.
var causewayRow = row{
	name:       "causeway",
	newAgent:   newCausewayAgent,
	newServer:  newCausewayServer,
	idleAgents: 200,
}

const causewayCluster = "bench/cluster"

// causewayAuthority returns the authority of both processes; the first one makes it.
func causewayAuthority(dir string) (*tunnel.Authority, error) {
	certFile, keyFile := filepath.Join(dir, "authority.pem"), filepath.Join(dir, "authority.key")
	cert, err := os.ReadFile(certFile)
	if err == nil {
		key, err := os.ReadFile(keyFile)
		if err != nil {
			return nil, fmt.Errorf("bench: authority: %w", err)
		}
		return tunnel.ParseAuthority(cert, key)
	}
	a, err := tunnel.NewAuthority()
	if err != nil {
		return nil, err
	}
	cert, key, err := a.PEM()
	if err == nil {
		err = os.WriteFile(keyFile, key, 0o600)
	}
	if err == nil {
		err = os.WriteFile(certFile, cert, 0o600)
	}
	return a, err
}

// wsRow and wssRow are causeway over a WebSocket, without and with an outer TLS.
var wsRow, wssRow = webSocketRow("ws"), webSocketRow("wss")

func webSocketRow(scheme string) row {
	r := causewayRow
	r.name = scheme
	r.newAgent = func(s *Setup) (agent, error) {
		a, err := newCausewayAgent(s)
		if err == nil && scheme == "wss" {
			a.(*causewayAgent).outer, err = clientTLS(s.Dir)
		}
		a.(*causewayAgent).scheme = scheme + "://"
		return a, err
	}
	r.newServer = func(s *Setup) (server, error) {
		var outer *tls.Config
		if scheme == "wss" {
			var err error
			if outer, err = serverTLS(s.Dir); err != nil {
				return nil, err
			}
		}
		return startCausewayServer(s, func(l net.Listener) net.Listener { return tunnel.ListenWebSocket(l, outer) })
	}
	return r
}

type causewayAgent struct {
	dir, target string
	scheme      string // of the server's URL; empty: TCP
	outer       *tls.Config
	ctx         context.Context
	cancel      context.CancelFunc
	wg          sync.WaitGroup
}

func newCausewayAgent(s *Setup) (agent, error) {
	a := &causewayAgent{dir: s.Dir, target: s.Target}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a, nil
}

func (*causewayAgent) addr() string { return "" }

// connect invites by the server's folder, as causeway server does.
func (a *causewayAgent) connect(ctx context.Context, server string, n int) (string, error) {
	authority, err := causewayAuthority(a.dir)
	if err != nil {
		return "", err
	}
	host := &tunnel.Server{Authority: authority, Store: tunnel.DirStore{Dir: a.dir}}
	up := make(chan struct{}, n)
	for range n {
		inv, err := host.Invite(ctx, causewayCluster, 0)
		if err != nil {
			return "", err
		}
		inv.Servers = []string{a.scheme + server}
		member := &tunnel.Agent{
			Credentials:  &tunnel.MemoryCredentials{},
			WebSocketTLS: a.outer,
			Invitation:   func(context.Context) (tunnel.Invitation, error) { return inv, nil },
			Targets:      tunnel.Targets{Allow: []string{a.target}},
			MaxStreams:   1 << 15,
			Grace:        -1,
			Hooks:        tunnel.AgentHooks{Connected: func(string, tunnel.Identity) { up <- struct{}{} }},
		}
		a.wg.Go(func() { member.Run(a.ctx) })
	}
	for range n {
		select {
		case <-up:
		case <-ctx.Done():
			return "", fmt.Errorf("bench: agents: %w", ctx.Err())
		}
	}
	return "", nil
}

func (a *causewayAgent) Close() error {
	a.cancel()
	a.wg.Wait()
	return nil
}

type causewayServer struct {
	server *tunnel.Server
	dialer *tunnel.Dialer
	l      net.Listener
	target string
	count  atomic.Int64
	served chan error
}

func newCausewayServer(s *Setup) (server, error) {
	return startCausewayServer(s, func(l net.Listener) net.Listener { return l })
}

func startCausewayServer(s *Setup, accept func(net.Listener) net.Listener) (server, error) {
	authority, err := causewayAuthority(s.Dir)
	if err != nil {
		return nil, err
	}
	c := &causewayServer{target: s.Target, served: make(chan error, 1)}
	c.server = &tunnel.Server{
		Authority:  authority,
		Store:      tunnel.DirStore{Dir: s.Dir},
		MaxStreams: 1 << 15,
		Hooks:      tunnel.Hooks{Connected: func(tunnel.SessionInfo) { c.count.Add(1) }},
	}
	c.dialer = c.server.Dialer(causewayCluster)
	if c.l, err = listenTCP(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	c.l = accept(c.l)
	go func() { c.served <- c.server.Serve(context.Background(), c.l) }()
	return c, nil
}

func (c *causewayServer) addr() string  { return c.l.Addr().String() }
func (c *causewayServer) sessions() int { return int(c.count.Load()) }

func (c *causewayServer) dial(ctx context.Context) (net.Conn, error) {
	return c.dialer.DialContext(ctx, "tcp", c.target)
}

func (*causewayServer) relay(client, target net.Conn) {
	joined.Relay(context.Background(), client, target)
}

func (c *causewayServer) Close() error {
	err := c.server.Close()
	<-c.served
	return err
}

// replicaRow is causeway where clients come to a replica that has no agent: its
// dials go by the one that has. Both are in the server's process.
var replicaRow = row{
	name:       "replica",
	newAgent:   newCausewayAgent,
	newServer:  newReplicaServer,
	idleAgents: 200,
}

type replicaServer struct {
	*causewayServer // the one with the agents
	near            *tunnel.Server
	served          chan error
}

func newReplicaServer(s *Setup) (server, error) {
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
