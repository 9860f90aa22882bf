package e2e

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// rowPassword needs no escape in a URL.
const rowPassword = "canary-of-the-row"

// A privateProxy is an HTTP proxy where the others are, for one test.
type privateProxy struct {
	bed      *bed.Bed
	address  string
	password atomic.Pointer[string]
	refused  atomic.Int32 // passwords
	dialed   atomic.Int32 // connections made
	close    func()
}

func newPrivateProxy(t *testing.T, b *bed.Bed) *privateProxy {
	t.Helper()
	p := &privateProxy{bed: b, address: net.JoinHostPort(bed.ProxyIP, "0")}
	p.password.Store(ptr.To(rowPassword))
	p.open(t)
	return p
}

// url has the credentials.
func (p *privateProxy) url() string {
	return "http://" + bed.ProxyUser + ":" + rowPassword + "@" + p.address
}

// open lets it listen, until close is called; at the latest the test's end
// calls it.
func (p *privateProxy) open(t *testing.T) {
	t.Helper()
	g := &gateway.Gateway{Grace: -1, Authenticate: func(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
		if c.User != bed.ProxyUser || c.Password != *p.password.Load() {
			p.refused.Add(1)
			return gateway.Identity{}, gateway.ErrCredentials
		}
		return gateway.Identity{Name: c.User}, nil
	}}
	g.Dial = func(ctx context.Context, r gateway.Request) (net.Conn, error) {
		p.dialed.Add(1)
		return p.bed.Network.Proxy.DialContext(ctx, "tcp", r.Address)
	}
	l := listen(t, p.bed.Network.Proxy, p.address)
	p.address = l.Addr().String()
	p.close = serveUntil(t, g, g.ServeConnect, l)
}

// serveUntil serves a door until the function that it returns is called, or
// the test ends.
func serveUntil(t *testing.T, g *gateway.Gateway, serve func(context.Context, net.Listener) error, l net.Listener) (stop func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- serve(context.Background(), l) }()
	stop = sync.OnceFunc(func() {
		g.Close()
		if err := <-done; err != nil {
			t.Errorf("got %v from the door", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
