package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/limits"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// forward is a listener and the target of its connections.
type forward struct{ listen, cluster, target string }

// parseForward reads LISTEN=CLUSTER/HOST:PORT. A cluster's name may hold
// slashes, a target none.
func parseForward(text string) (forward, error) {
	listen, to, ok := strings.Cut(text, "=")
	slash := strings.LastIndexByte(to, '/')
	if !ok || slash <= 0 {
		return forward{}, cli.Mistake("--forward %s is not LISTEN=CLUSTER/HOST:PORT", cli.Quote(text))
	}
	f := forward{listen, to[:slash], to[slash+1:]}
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return forward{}, cli.Mistake("--forward %s: LISTEN is not HOST:PORT", cli.Quote(text))
	}
	if err := checkDialable(f.target); err != nil {
		return forward{}, cli.Mistake("--forward %s: the target: %v", cli.Quote(text), err)
	}
	return f, nil
}

// forward serves l until ctx ends, and its connections for the grace.
func (p *program) forward(ctx context.Context, l net.Listener, to forward) error {
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	relaying, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var connections sync.WaitGroup
	defer func() {
		defer time.AfterFunc(p.grace, cancel).Stop()
		connections.Wait()
	}()
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			connections.Go(func() { p.forwardConn(relaying, conn, to) })
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ECONNABORTED):
			time.Sleep(50 * time.Millisecond) // that passes
		default:
			return err
		}
	}
}

func (p *program) forwardConn(ctx context.Context, conn net.Conn, to forward) {
	began := time.Now()
	a := access{door: "forward", remote: conn.RemoteAddr(), cluster: to.cluster, target: to.target}
	target, err := p.dial(ctx, gateway.Request{Cluster: to.cluster, Address: to.target, Credentials: gateway.Credentials{Remote: a.remote}})
	if err != nil {
		phase := gateway.PhaseDial
		if _, ok := errors.AsType[*limits.Error](err); ok {
			phase = gateway.PhaseLimit
		}
		p.events.clientFailed(a, phase, err)
		resetConn(conn) // a client could take an end for an answer
		return
	}
	e := gateway.Ended{Target: target.RemoteAddr()}
	e.In, e.Out, e.Err = relayConns(ctx, conn, target)
	e.Took = time.Since(began)
	p.log.LogAttrs(ctx, slog.LevelInfo, "access", a.endedAttrs(e)...)
}

// dial connects a target for a client, within the limits.
func (p *program) dial(ctx context.Context, r gateway.Request) (net.Conn, error) {
	ctx = tunnel.WithCaller(ctx, cmp.Or(r.Client.Name, limits.SourceOf(r.Credentials.Remote)))
	client := limits.Client{Name: r.Client.Name, Cluster: r.Cluster, Remote: r.Credentials.Remote}
	return p.limiter.Admit(ctx, client, func(ctx context.Context, metered bool) (net.Conn, error) {
		early, err := p.headers.header(r.Cluster, r.Address, r.Credentials.Remote)
		if err != nil {
			return nil, fmt.Errorf("PROXY header: %w", err)
		}
		if !metered { // else they count when they are written
			early = append(early, r.TakeEarly()...)
		}
		return p.server.Dialer(r.Cluster).DialEarly(ctx, "tcp", r.Address, early)
	})
}

// relayConns copies in both directions until both have ended, and returns how many bytes
// came from each. When one fails, or ctx ends, both connections are reset: data that was
// cut must not look complete. The error is the first.
func relayConns(ctx context.Context, a, b net.Conn) (fromA, fromB int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.Close()
	defer b.Close()
	setLinger(a, 0) // the system resets it if the program is killed
	reset := sync.OnceFunc(func() {
		resetConn(a)
		resetConn(b)
	})
	defer context.AfterFunc(ctx, reset)()
	var wg sync.WaitGroup
	for _, way := range []struct {
		to, from net.Conn
		n        *int64
	}{{b, a, &fromA}, {a, b, &fromB}} {
		wg.Go(func() {
			n, err := io.Copy(way.to, way.from)
			*way.n = n
			if half, ok := way.to.(interface{ CloseWrite() error }); ok && err == nil {
				err = half.CloseWrite()
			}
			if err != nil {
				cancel(err)
				reset()
			}
		})
	}
	wg.Wait()
	if err = context.Cause(ctx); err == nil {
		setLinger(a, -1)
	}
	return fromA, fromB, err
}

// resetConn closes a connection so that its peer sees that it was no regular end.
func resetConn(conn net.Conn) {
	if c, ok := conn.(interface{ Reset(code uint32) error }); ok {
		c.Reset(0)
	}
	setLinger(conn, 0)
	conn.Close()
}

// setLinger is the method of [net.TCPConn], if there is one.
func setLinger(conn net.Conn, seconds int) {
	if c, ok := conn.(*clientConn); ok {
		conn = c.Conn
	}
	if c, ok := conn.(*net.TCPConn); ok {
		c.SetLinger(seconds)
	}
}
