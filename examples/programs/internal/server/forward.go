package server

import (
	"cmp"
	"context"
	"errors"
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

// parsePlace reads what=CLUSTER/HOST:PORT of a flag. A cluster's name may hold slashes, a
// target none.
func parsePlace(flag, what, text string) (from string, to gateway.Place, err error) {
	from, place, ok := strings.Cut(text, "=")
	slash := strings.LastIndexByte(place, '/')
	if !ok || from == "" || slash <= 0 {
		return "", to, cli.Mistake("%s %s is not %s=CLUSTER/HOST:PORT", flag, cli.Quote(text), what)
	}
	to = gateway.Place{Cluster: place[:slash], Address: place[slash+1:]}
	if err := hostport.CheckAddress(to.Address); err != nil {
		return "", to, cli.Mistake("%s %s: the target: %v", flag, cli.Quote(text), err)
	}
	return from, to, nil
}

// parseForward reads --forward.
func parseForward(text string) (listen string, to gateway.Place, err error) {
	listen, to, err = parsePlace("--forward", "LISTEN", text)
	if _, _, wrong := net.SplitHostPort(listen); err == nil && wrong != nil {
		err = cli.Mistake("--forward %s: LISTEN is not HOST:PORT", cli.Quote(text))
	}
	return listen, to, err
}

func (p *program) forwardConn(ctx context.Context, conn net.Conn, to gateway.Place) {
	began := time.Now()
	a := access{door: "forward", remote: conn.RemoteAddr(), cluster: to.Cluster, target: to.Address}
	target, err := p.dial(ctx, gateway.Request{Cluster: to.Cluster, Address: to.Address, Credentials: gateway.Credentials{Remote: a.remote}})
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
	p.log.Info("access", a.endedAttrs(e)...)
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
