package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/causewayproject/causeway/dialer"
	joined "github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// The rows with a gateway have its CONNECT door where the others have a bare
// listener. The client is package dialer's.
var (
	gatewayRow     = doorRow("gateway")
	gatewayTLSRow  = doorRow("gateway-tls")
	gatewayMTLSRow = doorRow("gateway-mtls") // its client shows a certificate, too
	relayRow       = row{
		name:      "relay",
		newServer: newRelayServer,
	}
	gatewayPlainRow = row{
		name:      "gateway-plain",
		newServer: newPlainGateway,
		newClient: newGatewayClient,
	}
)

func doorRow(name string) row {
	return row{name: name, newAgent: newCausewayAgent, newServer: newGatewayServer, newClient: newGatewayClient, idleAgents: 200}
}

const gatewayUser, gatewayPassword = "bench", "correct horse"

// A gatewayDoor is a CONNECT door that asks for a password.
type gatewayDoor struct {
	g      *gateway.Gateway
	l      net.Listener
	served chan error
}

func openGateway(g *gateway.Gateway) (*gatewayDoor, error) {
	g.Authenticate = func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
		if c.User != gatewayUser || c.Password != gatewayPassword {
			return gateway.Identity{}, gateway.ErrCredentials
		}
		return gateway.Identity{Name: gatewayUser, Cluster: causewayCluster}, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	d := &gatewayDoor{g: g, l: l, served: make(chan error, 1)}
	go func() { d.served <- d.g.ServeConnect(context.Background(), l) }()
	return d, nil
}

func (d *gatewayDoor) front() string { return d.l.Addr().String() }

func (d *gatewayDoor) Close() error {
	err := d.g.Close()
	<-d.served
	return err
}

type gatewayServer struct {
	*causewayServer
	*gatewayDoor
}

func newGatewayServer(s *Setup) (server, error) {
	half, err := newCausewayServer(s)
	if err != nil {
		return nil, err
	}
	c := half.(*causewayServer)
	g := &gateway.Gateway{Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		return c.server.Dialer(r.Cluster).DialContext(ctx, "tcp", r.Address)
	}}
	var d *gatewayDoor
	if strings.HasSuffix(s.Row, "tls") {
		if g.TLS, err = serverTLS(s.Dir); err == nil {
			g.TLS.SessionTicketsDisabled = false // as it is unless somebody says so
		}
	}
	if strings.HasSuffix(s.Row, "-mtls") && err == nil {
		g.TLS.ClientAuth = tls.RequireAndVerifyClientCert
		g.TLS.ClientCAs, err = readAuthority(s.Dir)
	}
	if err == nil {
		d, err = openGateway(g)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return &gatewayServer{c, d}, nil
}

func (g *gatewayServer) Close() error {
	g.gatewayDoor.Close()
	return g.causewayServer.Close()
}

// A relayServer is a server without a tunnel.
type relayServer struct{ target string }

func newRelayServer(s *Setup) (server, error) { return &relayServer{s.Target}, nil }

func (*relayServer) addr() string  { return "" }
func (*relayServer) sessions() int { return 0 }
func (*relayServer) Close() error  { return nil }

func (p *relayServer) dial(ctx context.Context) (net.Conn, error) { return dialTCP(ctx, p.target) }

func (*relayServer) relay(client, target net.Conn) {
	joined.Relay(context.Background(), client, target)
}

type plainGateway struct {
	relayServer
	*gatewayDoor
}

func newPlainGateway(s *Setup) (server, error) {
	d, err := openGateway(&gateway.Gateway{Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		return dialTCP(ctx, r.Address)
	}})
	return &plainGateway{relayServer{s.Target}, d}, err
}

func (p *plainGateway) Close() error { return p.gatewayDoor.Close() }

// newGatewayClient asks a CONNECT door for the target.
func newGatewayClient(s *Setup) (dialFunc, error) {
	proxy := dialer.HTTPConnect{Auth: dialer.Basic(dialer.Password(gatewayUser, gatewayPassword))}
	var err error
	if strings.HasSuffix(s.Row, "tls") {
		if proxy.TLSConfig, err = clientTLS(s.Dir); err == nil {
			proxy.TLSConfig.ClientSessionCache = tls.NewLRUClientSessionCache(1) // as FromURL does
		}
	}
	if strings.HasSuffix(s.Row, "-mtls") && err == nil {
		proxy.TLSConfig.Certificates = make([]tls.Certificate, 1)
		proxy.TLSConfig.Certificates[0], err = tls.LoadX509KeyPair(filepath.Join(s.Dir, "client.pem"), filepath.Join(s.Dir, "client-key.pem"))
	}
	target := s.Target
	return func(ctx context.Context, server string) (net.Conn, error) {
		door := proxy
		door.Addr = server
		return door.DialContext(ctx, "tcp", target)
	}, err
}
