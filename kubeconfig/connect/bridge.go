package connect

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"

	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// bridgeUser is the user name of the bridge.
const bridgeUser = "client"

// bridge is a CONNECT proxy on loopback in front of one API server. Code that makes
// its own connections, and takes a proxy but no dial function, uses it. TLS goes
// through it end to end. It outlives routes, and so do its connections: their owner
// can't replace them unnoticed.
type bridge struct {
	owner  *Client // knows the API server; nothing else is dialed
	conns  *connections
	group  *group.Group // goroutines that end with the Client
	secret string       // the password

	mu      sync.Mutex // guards the fields below
	closed  bool
	address string // the listener's; empty until it listens
	gateway *gateway.Gateway
	served  chan struct{} // closed when the gateway stops serving
}

// newBridge starts nothing: most Clients need none.
func newBridge(owner *Client) *bridge {
	conns := newConnections()
	return &bridge{owner: owner, conns: conns, group: group.New(conns.closed), secret: rand.Text()}
}

// proxy is the Proxy of the returned rest.Configs. Only code that connects without the
// transport calls it. It returns the bridge's URL with user name and password.
func (b *bridge) proxy(*http.Request) (*url.URL, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.startLocked(); err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "http", Host: b.address, User: url.UserPassword(bridgeUser, b.secret)}, nil
}

// startLocked opens the listener, which does not block.
func (b *bridge) startLocked() error {
	switch {
	case b.closed:
		return errClosed
	case b.gateway != nil:
		return nil
	}
	l, err := listenFirst("127.0.0.1:0", "[::1]:0") // a host may have no IPv4
	if err != nil {
		return fmt.Errorf("connect: bridge for exec and port-forward: %w", err)
	}
	b.address = l.Addr().String()
	b.gateway = &gateway.Gateway{Dial: b.dial, Authenticate: b.authenticate, Grace: -1}
	b.served = make(chan struct{})
	go b.serve(l)
	return nil
}

// listenFirst listens at the first of the addresses that the host has.
func listenFirst(addresses ...string) (l net.Listener, err error) {
	for _, address := range addresses {
		if l, err = net.Listen("tcp", address); err == nil {
			break
		}
	}
	return l, err
}

// serve ends with the gateway, which close closes.
func (b *bridge) serve(l net.Listener) {
	defer close(b.served)
	// If the listener fails, the next connection to it fails.
	_ = b.gateway.ServeConnect(context.Background(), l)
}

func (b *bridge) authenticate(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
	if c.User != bridgeUser || subtle.ConstantTimeCompare([]byte(b.secret), []byte(c.Password)) != 1 {
		return gateway.Identity{}, gateway.ErrCredentials
	}
	return gateway.Identity{Name: bridgeUser}, nil
}

// dial takes a former address of the API server for the one that it has now.
func (b *bridge) dial(ctx context.Context, r gateway.Request) (net.Conn, error) {
	g := b.owner.currentRoute()
	if !b.owner.isKnownAddress(r.Address) {
		return nil, fmt.Errorf("this proxy leads only to %s: %w", g.Server.Address, syscall.EACCES)
	}
	return b.conns.dial(ctx, g.Dialer, "tcp", g.Server.Address)
}

// close lets nobody in, cuts what is open and waits for the goroutines.
func (b *bridge) close() {
	b.conns.close(errClosed)
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.group.Close()
	if b.gateway != nil { // not written any more
		b.gateway.Close()
		<-b.served
	}
	<-b.group.Idle()
}
