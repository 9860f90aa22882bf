package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
)

// doors is what a Gateway keeps of its doors.
type doors struct {
	set    group.Set
	visits visits
	// pending are the clients that are not let in yet.
	pending *admission.Admission

	connectTLS *tls.Config // the Gateway's, with the protocols of the CONNECT door
}

// setup checks the fields, once.
func (g *Gateway) setup() error {
	g.once.Do(func() {
		g.visits.init(orDefault(g.MaxConns, 10_000), g.MaxPerClient)
		g.pending = admission.New(orDefault(g.MaxPending, 1000), 0)
		if g.TLS != nil {
			g.connectTLS = admission.Sparing(g.TLS.Clone())
			if len(g.TLS.NextProtos) == 0 {
				g.connectTLS.NextProtos = protocols
			}
		}
	})
	if g.Dial == nil {
		return errors.New("gateway: field Dial is required")
	}
	return nil
}

func orDefault[T int | time.Duration](v, byDefault T) T {
	if v == 0 {
		return byDefault
	}
	return v
}

func (g *Gateway) handshakeTimeout() time.Duration {
	return orDefault(g.HandshakeTimeout, 10*time.Second)
}

func (g *Gateway) grace() time.Duration { return max(orDefault(g.Grace, 30*time.Second), 0) }

// ServeConnect is an HTTP proxy that knows CONNECT alone, for TCP and unix
// sockets, by HTTP/1.1 and HTTP/2 (by prior knowledge, or with the field TLS by
// ALPN). It serves until the context ends or the listener fails, closes the
// listener and returns when its goroutines have ended: connections live on for
// Grace. The error is the listener's; nil after the end of the context and
// after Shutdown.
//
// What is cut looks so to a client: a reset of TCP or of the stream, TLS without
// its end. A unix socket has no such thing: there a cut is an end, and what it
// carries (TLS as a rule) tells one from the other.
//
// An HTTP/2 connection counts for MaxConns as each of its streams does. One
// that has had no stream for two minutes is closed.
func (g *Gateway) ServeConnect(ctx context.Context, l net.Listener) error {
	return g.serve(ctx, l, g.connect)
}

// ServeSOCKS5 is a SOCKS5 server (RFC 1928, CONNECT alone) with user name and
// password (RFC 1929). It serves as ServeConnect does.
func (g *Gateway) ServeSOCKS5(ctx context.Context, l net.Listener) error {
	return g.serve(ctx, l, g.socks5)
}

// ServeSNI relays TLS connections by the server name that they ask for
// (RFC 6066, 3), without ending TLS: Route says which cluster and target a
// name stands for. It serves as ServeConnect does.
func (g *Gateway) ServeSNI(ctx context.Context, l net.Listener) error {
	return g.serve(ctx, l, g.sni)
}

func (g *Gateway) serve(ctx context.Context, l net.Listener, handle func(*group.Group, net.Conn)) error {
	if err := g.setup(); err != nil {
		l.Close()
		return err
	}
	return g.set.Serve(ctx, l, g.grace(), func(gr *group.Group, conn net.Conn) {
		defer conn.Close()
		handle(gr, conn)
	})
}

// Shutdown lets nobody in any more, waits until the connections have ended or
// the context has, and then ends what is left.
func (g *Gateway) Shutdown(ctx context.Context) error {
	if err := g.setup(); err != nil {
		return err
	}
	return g.set.Shutdown(ctx)
}

// Close ends all connections at once and waits for the Gateway's goroutines.
func (g *Gateway) Close() error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.Shutdown(ended); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
