package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/limits"
	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/hostport"
	"github.com/causewayproject/causeway/internal/relay"
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
	if err := hostport.CheckAddress(f.target); err != nil {
		return forward{}, cli.Mistake("--forward %s: the target: %v", cli.Quote(text), err)
	}
	return f, nil
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
		abort.Reset(conn, 0) // a client could take an end for an answer
		return
	}
	r := relay.Relay(ctx, conn, target)
	e := gateway.Ended{Target: target.RemoteAddr(), In: r.AToB, Out: r.BToA, Err: r.Err, Took: time.Since(began)}
	p.log.LogAttrs(ctx, slog.LevelInfo, "access", a.endedAttrs(e)...)
}

// dial connects a target for a client, within the limits.
func (p *program) dial(ctx context.Context, r gateway.Request) (net.Conn, error) {
	ctx = tunnel.WithCaller(ctx, cmp.Or(r.Client.Name, limits.SourceOf(r.Credentials.Remote)))
	return p.metrics.limiter.Admit(ctx, r, func(ctx context.Context, metered bool) (net.Conn, error) {
		var early []byte
		if !metered { // else they count when they are written
			early = r.TakeEarly()
		}
		return p.server.Dialer(r.Cluster).DialEarly(ctx, "tcp", r.Address, early)
	})
}
