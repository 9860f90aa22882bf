package connect

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// lingerTime is how long a connection that was closed may take to deliver what
// was written to it.
const lingerTime = 5 * time.Second

// bridge is a CONNECT proxy on loopback in front of one API server. Code that makes
// its own connections, and takes a proxy but no dial function, uses it. TLS goes
// through it end to end. It outlives routes, and so do its connections: their owner
// can't replace them unnoticed.
type bridge struct {
	owner *Client      // knows the API server; nothing else is dialed
	conns *connections // with the Client's own login
	group *group.Group // goroutines that end with the Client

	mu      sync.Mutex        // guards the fields below
	logins  map[string]*login // by user name; nil once closed
	client  *login            // that of the rest.Configs handed out
	issued  int
	address string // the listener's; empty until it listens
	gateway *gateway.Gateway
	served  chan struct{} // closed when the gateway stops serving
}

// newBridge starts nothing: most Clients need none.
func newBridge(owner *Client) *bridge {
	conns := newConnections()
	return &bridge{owner: owner, conns: conns, group: group.New(conns.closed), logins: make(map[string]*login)}
}

// login is a user name and password of the bridge, and what was dialed with it.
type login struct {
	bridge *bridge
	user   string
	secret string
	conns  *connections
	cause  atomic.Pointer[error] // why the last dial failed
}

// proxy is the Proxy of the returned rest.Configs. Only code that connects without the
// transport calls it.
func (b *bridge) proxy(*http.Request) (*url.URL, error) { return b.clientURL() }

func (b *bridge) clientURL() (*url.URL, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client == nil {
		p, err := b.addLoginLocked(b.conns)
		if err != nil {
			return nil, err
		}
		b.client = p
	}
	if b.logins == nil {
		return nil, errClosed
	}
	return b.client.urlLocked(), nil
}

// newLogin returns a login of its own for one call, which can then be cut off
// without touching others. The caller calls its closeLater or close.
func (b *bridge) newLogin() (*login, error) {
	conns := newConnections()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addLoginLocked(conns)
}

func (b *bridge) addLoginLocked(conns *connections) (*login, error) {
	if err := b.startLocked(); err != nil {
		return nil, err
	}
	b.issued++
	p := &login{bridge: b, user: "client-" + strconv.Itoa(b.issued), secret: rand.Text(), conns: conns}
	b.logins[p.user] = p
	return p, nil
}

// startLocked opens the listener, which does not block.
func (b *bridge) startLocked() error {
	switch {
	case b.logins == nil:
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

func (b *bridge) findLogin(user string) *login {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logins[user]
}

func (b *bridge) authenticate(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
	p := b.findLogin(c.User)
	if p == nil || subtle.ConstantTimeCompare([]byte(p.secret), []byte(c.Password)) != 1 {
		return gateway.Identity{}, gateway.ErrCredentials
	}
	return gateway.Identity{Name: p.user}, nil
}

// dial takes a former address of the API server for the one that it has now.
func (b *bridge) dial(ctx context.Context, r gateway.Request) (net.Conn, error) {
	p, g := b.findLogin(r.Client.Name), b.owner.currentRoute()
	switch {
	case p == nil:
		return nil, errClosed
	case !b.owner.isKnownAddress(r.Address):
		return nil, fmt.Errorf("this proxy leads only to %s: %w", g.Server.Address, syscall.EACCES)
	}
	conn, err := p.conns.dial(ctx, g.Dialer, "tcp", g.Server.Address)
	if err != nil {
		p.cause.Store(&err)
		return nil, err
	}
	return conn, nil
}

// close lets nobody in, cuts what is open and waits for the goroutines.
func (b *bridge) close() {
	b.conns.close(errClosed)
	b.mu.Lock()
	logins := b.logins
	b.logins = nil
	b.mu.Unlock()
	for _, p := range logins {
		p.conns.close(errClosed)
	}
	b.group.Close()
	if b.gateway != nil { // not written any more
		b.gateway.Close()
		<-b.served
	}
	<-b.group.Idle()
}

// url returns the bridge's URL with the login in it.
func (p *login) url() *url.URL {
	p.bridge.mu.Lock()
	defer p.bridge.mu.Unlock()
	return p.urlLocked()
}

func (p *login) urlLocked() *url.URL {
	return &url.URL{Scheme: "http", Host: p.bridge.address, User: url.UserPassword(p.user, p.secret)}
}

// close cuts what was dialed with the login, which is worth nothing any more.
func (p *login) close() {
	p.revoke()
	p.conns.close(errClosed)
}

// closeLater gives connections that were closed the time to deliver what they hold.
func (p *login) closeLater() {
	if !p.bridge.group.Go(p.drain) {
		p.close()
	}
}

// drain is closeLater, in a goroutine of the bridge's group.
func (p *login) drain() {
	ctx, cancel := context.WithTimeout(p.bridge.group.Context(), lingerTime)
	defer cancel()
	p.conns.wait(ctx)
	p.close()
}

func (p *login) revoke() {
	p.bridge.mu.Lock()
	defer p.bridge.mu.Unlock()
	delete(p.bridge.logins, p.user)
}

// untilClosed returns a context that also ends with the Client.
func (b *bridge) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(b.conns.closed, cancel)
	return ctx, func() { stop(); cancel() }
}

// explainError finds what err, of a call that used the login, comes from: client-go
// knows only how the proxy put it.
func (p *login) explainError(op string, ctx context.Context, err error) error {
	var cause error
	if c := p.cause.Load(); c != nil {
		cause = *c
	}
	switch {
	case p.bridge.conns.isClosed():
		return errClosed
	case ctx.Err() != nil:
		return fmt.Errorf("connect: %s: %w", op, ctx.Err())
	case cause != nil:
		return fmt.Errorf("connect: %s: %w", op, cause)
	}
	return fmt.Errorf("connect: %s: %w", op, err)
}
