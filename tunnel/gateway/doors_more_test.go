package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// moreDoors are those beside CONNECT.
func moreDoors() []door {
	serve := (*gateway.Gateway).ServeSOCKS5
	known := &outcomes{of: map[string]chan struct{}{}}
	return []door{
		{name: "socks5", serve: serve, codes: codesSOCKS5, client: socksClient(nil)},
		{name: "socks5, unix", serve: serve, codes: codesSOCKS5, client: socksClient(nil), unix: true},
		{name: "socks5, TLS", serve: serve, codes: codesSOCKS5, client: socksClient(clientTLS()), tls: true},
		{name: "sni", serve: known.serve, codes: codesNone, client: known.client, open: true, target: afterHello},
	}
}

func socksClient(cfg *tls.Config) func(testing.TB, net.Addr, string, string) dialer.Dialer {
	return func(_ testing.TB, addr net.Addr, user, password string) dialer.Dialer {
		d := &dialer.SOCKS5{Addr: proxyAddr(addr)}
		if user != "" {
			d.Credentials = dialer.Password(user, password)
		}
		if cfg != nil {
			d.Forward = dialer.Func((&tls.Dialer{Config: cfg}).DialContext)
		}
		return d
	}
}

// helloA is what a client says to the SNI door in the suite; the target has to
// get it first.
var helloA = oneRecord(sniOf("api.example.com"))

func afterHello(target net.Conn) net.Conn {
	got := make([]byte, len(helloA))
	if _, err := io.ReadFull(target, got); err != nil || string(got) != helloA {
		panic(fmt.Sprintf("the target got %q, %v", got, err))
	}
	return target
}

// outcomes tell a client of the SNI door that it is connected, which no client
// is told: by its address.
type outcomes struct {
	mu sync.Mutex // guards the field below
	of map[string]chan struct{}
}

func (o *outcomes) connected(client string) chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[client] == nil {
		o.of[client] = make(chan struct{})
	}
	return o.of[client]
}

func (o *outcomes) serve(g *gateway.Gateway, ctx context.Context, l net.Listener) error {
	table := &gateway.Table{}
	table.Set(map[string]gateway.Place{"api.example.com": {Cluster: "a", Address: "kubernetes.default.svc:443"}})
	g.Route = gateway.ByTable(table)
	g.Hooks.Dialed = func(r gateway.Request, _ time.Duration, err error) {
		if err == nil {
			close(o.connected(r.Credentials.Remote.String()))
		}
	}
	return g.ServeSNI(ctx, l)
}

func (o *outcomes) client(_ testing.TB, addr net.Addr, _, _ string) dialer.Dialer {
	return dialer.Func(func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr.String())
		if err != nil {
			return nil, err
		}
		client := conn.LocalAddr().String()
		if _, err := io.WriteString(conn, helloA); err != nil {
			conn.Close()
			return nil, err
		}
		refused := make(chan error, 1)
		go func() {
			// The targets of the suite say nothing before the client is there.
			n, err := conn.Read(make([]byte, 100))
			refused <- fmt.Errorf("got %d bytes and %w", n, errors.Join(err, io.ErrUnexpectedEOF))
		}()
		select {
		case <-o.connected(client):
			conn.SetReadDeadline(time.Unix(1, 0))
			<-refused
			conn.SetReadDeadline(time.Time{})
			o.mu.Lock()
			defer o.mu.Unlock()
			delete(o.of, client)
			return conn, nil
		case err = <-refused:
			conn.Close()
			return nil, err
		case <-ctx.Done():
			conn.Close()
			<-refused
			return nil, ctx.Err()
		}
	})
}
