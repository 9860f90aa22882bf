package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/limits"
	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/hostport"
	"github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
	tunnelkube "github.com/causewayproject/causeway/tunnel/kubernetes"
)

// doorFlags are the flags of the doors for clients that can't be changed.
type doorFlags struct {
	connect, connectTLS, socks5, sni string
	cert, key, clientCA              string
	names, audiences                 cli.List
	opaque                           bool
}

func (f *doorFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.connect, "connect", "", "`address` of an HTTP proxy that leads clients with a ticket to their cluster; keep it on loopback")
	set.StringVar(&f.connectTLS, "connect-tls", "", "`address` of the same with TLS")
	set.StringVar(&f.cert, "door-cert", "", "PEM `file`: the certificate of --connect-tls")
	set.StringVar(&f.key, "door-key", "", "PEM `file` of its key")
	set.StringVar(&f.clientCA, "door-client-ca", "", "PEM `file`: at --connect-tls, a certificate of this authority is as good as a ticket; its common name is the cluster")
	set.Var(&f.audiences, "door-token-audience", "`name` of the proxies that no other service has: at --connect and --connect-tls, a token for it of the cluster that --kubeconfig leads to, such as a ServiceAccount's, is as good as a ticket, with CLUSTER as the user, if RBAC there lets it connect on clusters/tunnel in cluster.x-k8s.io of that namespace and name; several are allowed")
	set.BoolVar(&f.opaque, "door-token-opaque", false, "ask about tokens, too, that do not say that they are for a --door-token-audience, such as those of OIDC and of Secrets: it then has to be one of kube-apiserver's own --api-audiences")
	set.StringVar(&f.socks5, "socks5", "", "`address` of a SOCKS5 proxy for clients with a ticket; keep it on loopback")
	set.StringVar(&f.sni, "sni", "", "`address` that leads TLS by the name that it asks for, see --sni-name")
	set.Var(&f.names, "sni-name", "`NAME=CLUSTER/HOST:PORT`: where --sni leads a name to, for whoever asks; several are allowed")
}

func (f *doorFlags) check() error {
	switch {
	case (f.connectTLS == "") != (f.cert == ""), (f.cert == "") != (f.key == ""), f.clientCA != "" && f.connectTLS == "":
		return cli.Mistake("--connect-tls, --door-cert and --door-key go together")
	case len(f.audiences) > 0 && f.connect == "" && f.connectTLS == "":
		return cli.Mistake("--door-token-audience goes with --connect or --connect-tls")
	case f.opaque && len(f.audiences) == 0:
		return cli.Mistake("--door-token-opaque goes with --door-token-audience")
	case (f.sni == "") != (len(f.names) == 0):
		return cli.Mistake("--sni and --sni-name go together")
	}
	_, err := f.sniTable()
	return err
}

// newGateway returns a Gateway for clients with a ticket or a token. Its metrics have the
// name of the listener.
func (p *program) newGateway(listener string) *gateway.Gateway {
	g := &gateway.Gateway{
		Dial:         p.dial,
		Authenticate: gateway.FirstOf(p.tickets.Authenticate, p.byToken),
		Budget:       p.server.Budget,
		Grace:        cmp.Or(p.grace, -1),
	}
	g.Hooks = p.metrics.addGateway(listener, g.Status).Hooks(p.events.doorHooks(listener))
	p.doorFailed[listener] = g.Hooks.Failed
	return g
}

// addDoors adds a service for each door.
func (p *program) addDoors(ctx context.Context, f *doorFlags, add func(name, address string, run func(net.Listener) error)) error {
	addDoor := func(name, address string, serve func(*gateway.Gateway, context.Context, net.Listener) error, change func(*gateway.Gateway)) {
		if address == "" {
			return
		}
		g := p.newGateway(name)
		change(g)
		add(name, address, func(l net.Listener) error { return serve(g, ctx, l) })
	}
	byTicket := func(*gateway.Gateway) {}
	addDoor("connect", f.connect, (*gateway.Gateway).ServeConnect, byTicket)
	addDoor("socks5", f.socks5, (*gateway.Gateway).ServeSOCKS5, byTicket)
	if f.connectTLS != "" {
		config, err := p.followCertificate("connect-tls", f.cert, f.key)
		if err != nil {
			return fmt.Errorf("--door-cert: %w", err)
		}
		addDoor("connect-tls", f.connectTLS, (*gateway.Gateway).ServeConnect, func(g *gateway.Gateway) {
			g.TLS = config
			if f.clientCA != "" {
				err = p.followClientCAs(g, f.clientCA)
			}
		})
		if err != nil {
			return fmt.Errorf("--door-client-ca: %w", err)
		}
	}
	table, _ := f.sniTable() // check has, too
	addDoor("sni", f.sni, (*gateway.Gateway).ServeSNI, func(g *gateway.Gateway) {
		g.Authenticate, g.Route = gateway.Anyone, gateway.ByTable(table)
	})
	return nil
}

func (f *doorFlags) sniTable() (*gateway.Table, error) {
	names := map[string]gateway.Place{}
	for _, text := range f.names {
		name, to, err := parsePlace("--sni-name", "NAME", text)
		if err != nil {
			return nil, err
		}
		names[name] = to
	}
	table := new(gateway.Table)
	table.Set(names)
	return table, nil
}

// authenticator returns the identity of a door's client.
type authenticator func(context.Context, gateway.Credentials) (gateway.Identity, error)

// byToken returns an authenticator by tokens of a cluster; nil without audiences.
func (f *doorFlags) byToken(state *stateFlags) (authenticator, error) {
	if len(f.audiences) == 0 {
		return nil, nil
	}
	// A client of its own: strangers with wrong tokens must not use up the state's
	// requests.
	client, err := state.client()
	if err != nil {
		return nil, fmt.Errorf("--door-token-audience: --kubeconfig: %w", err)
	}
	review := &tunnelkube.TokenReview{Client: client, Audiences: f.audiences, Opaque: f.opaque}
	return review.Authenticate, nil
}

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
