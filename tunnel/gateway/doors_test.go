package gateway_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// A door is what the conformance suite runs over.
type door struct {
	name string
	// codes chooses the column of the table of refusals.
	codes codes
	serve func(g *gateway.Gateway, ctx context.Context, l net.Listener) error
	// client dials through the door at addr. Its errors are *dialer.Error where
	// the door has a code. An empty user shows nothing.
	client func(t testing.TB, addr net.Addr, user, password string) dialer.Dialer

	tls    bool // the Gateway's TLS is set
	unix   bool
	open   bool // the door knows no passwords
	target func(net.Conn) net.Conn
	// early: the client may send before it is let in, by dialEarly.
}

type codes int

const (
	codesHTTP codes = iota
	codesSOCKS5
	codesNone // a refusal is the end of the connection
)

var ca = pki.NewCA("gateway test")

// doors are all that the suite runs over. More are added by other files.
func doors() []door {
	connect := (*gateway.Gateway).ServeConnect
	return append([]door{
		{name: "connect", serve: connect, client: connectClient(nil, false)},
		{name: "connect, unix", serve: connect, client: connectClient(nil, false), unix: true},
		{name: "connect, TLS", serve: connect, client: connectClient(clientTLS(), false), tls: true},
		{name: "connect, h2", serve: connect, client: connectClient(clientTLS(), true), tls: true},
		{name: "connect, h2 by prior knowledge", serve: connect, client: h2cClient},
	}, moreDoors()...)
}

func clientTLS() *tls.Config { return &tls.Config{RootCAs: ca.Pool(), ServerName: "gateway"} }

func serverTLS() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{ca.Server("gateway")}}
}

func connectClient(cfg *tls.Config, h2 bool) func(testing.TB, net.Addr, string, string) dialer.Dialer {
	return func(t testing.TB, addr net.Addr, user, password string) dialer.Dialer {
		d := &dialer.HTTPConnect{Addr: proxyAddr(addr), TLSConfig: cfg}
		if user != "" {
			d.Auth = dialer.Basic(dialer.Password(user, password))
		}
		if h2 {
			d.HTTP2 = &dialer.HTTP2{}
			t.Cleanup(func() { d.HTTP2.Close() })
		}
		return d
	}
}

func proxyAddr(addr net.Addr) string {
	if addr.Network() == "unix" {
		return "unix:" + addr.String()
	}
	return addr.String()
}

// bed is a Gateway with one door, and the target that it leads to.
type bed struct {
	t       testing.TB
	door    door
	g       *gateway.Gateway
	addr    net.Addr
	far     string             // the target's address
	cancel  context.CancelFunc // the Serve method's context
	served  chan error
	targets chan net.Conn
	dialed  chan gateway.Request
}

// users are those who may come in, with their clusters.
var users = map[string]gateway.Identity{
	"ann": {Name: "ann", Cluster: "a"},
	"bob": {Name: "bob", Cluster: "b"},
}

const (
	secret  = "correct horse"
	targetA = "kubernetes.default.svc.a.zone:443"
)

func authenticate(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
	if id, ok := users[c.User]; ok && c.Password == secret {
		return id, nil
	}
	return gateway.Identity{}, gateway.ErrCredentials
}

// newBed starts a Gateway; change may be nil.
func newBed(t testing.TB, d door, change func(*gateway.Gateway)) *bed {
	t.Helper()
	b := &bed{t: t, door: d, served: make(chan error, 1), targets: make(chan net.Conn, 100), dialed: make(chan gateway.Request, 100)}
	b.far = b.listenTarget()
	b.g = &gateway.Gateway{Authenticate: authenticate, Route: gateway.ByAuthority("zone")}
	b.g.Dial = func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		b.dialed <- r
		return (&net.Dialer{}).DialContext(ctx, "tcp", b.far)
	}
	if d.tls {
		b.g.TLS = serverTLS()
	}
	if d.open {
		b.g.Authenticate = gateway.Anyone
	}
	if change != nil {
		change(b.g)
	}
	network, address := "tcp", "127.0.0.1:0"
	if d.unix {
		network, address = "unix", filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	b.addr = l.Addr()
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	go func() {
		b.served <- d.serve(b.g, ctx, l)
		close(b.served)
	}()
	t.Cleanup(func() {
		b.g.Close()
		b.wait()
		cancel()
	})
	return b
}

// wait waits until the Serve method has returned.
func (b *bed) wait() {
	b.t.Helper()
	select {
	case err := <-b.served:
		if err != nil {
			b.t.Errorf("the Serve method returned %v", err)
		}
	case <-time.After(10 * time.Second):
		b.t.Error("the Serve method goes on")
	}
}

// listenTarget hands what it accepts to targets.
func (b *bed) listenTarget() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.targets <- conn
		}
	}()
	b.t.Cleanup(func() {
		l.Close()
		<-done
		close(b.targets)
		for conn := range b.targets {
			conn.Close()
		}
	})
	return l.Addr().String()
}

// dial connects as a user, by a client of its own.
func (b *bed) dial(user, password string) (net.Conn, error) {
	return b.dialBy(b.door.client(b.t, b.addr, user, password), targetA)
}

func (b *bed) dialBy(d dialer.Dialer, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		b.t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return conn, err
}

// pair is a client that is let in, and what the target sees of it.
func (b *bed) pair() (client, target net.Conn) {
	b.t.Helper()
	return b.pairBy(b.door.client(b.t, b.addr, "ann", secret))
}

func (b *bed) pairBy(d dialer.Dialer) (client, target net.Conn) {
	b.t.Helper()
	client, err := b.dialBy(d, targetA)
	if err != nil {
		b.t.Fatal(err)
	}
	target = <-b.targets
	b.t.Cleanup(func() { target.Close() })
	target.SetDeadline(time.Now().Add(20 * time.Second))
	if b.door.target != nil {
		target = b.door.target(target)
	}
	return client, target
}

// wire is a bare connection to the door.
func (b *bed) wire() net.Conn {
	b.t.Helper()
	conn, err := net.Dial(b.addr.Network(), b.addr.String())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

// dialEcho leads to something that says back what it is told.
func dialEcho(context.Context, gateway.Request) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		io.Copy(far, far)
	}()
	return near, nil
}
