package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
)

// Door is a way in.
type Door string

const (
	DoorConnect Door = "connect" // HTTP CONNECT, see [Gateway.ServeConnect]
	DoorSOCKS5  Door = "socks5"  // see [Gateway.ServeSOCKS5]
	DoorSNI     Door = "sni"     // see [Gateway.ServeSNI]
)

// Gateway lets clients in by one or more doors and relays them to what Dial
// connects. Its methods are safe for concurrent use; its fields must not change
// after the first call.
type Gateway struct {
	// Dial connects what a client asked for. Required. The context ends with
	// the client's patience: when it hangs up, or DialTimeout has passed. The
	// connection is the Gateway's, which closes it. Its text reaches the client
	// where the door has room for one, so it must hold no secret.
	Dial func(ctx context.Context, r Request) (net.Conn, error)

	// Authenticate says who a client is, or why it is let in no further. If
	// nil, nobody is let in; [Anyone] is for doors that only those who may can
	// reach, [FirstOf] for more than one kind of credentials. An error refuses
	// the client (407, "general failure" of SOCKS5, a
	// TLS alert); one that is or wraps syscall.EACCES says that no other
	// credentials of the client would help (403), an [Unavailable] that it is to
	// try again (503). The text is for Hooks, and no client sees it but that of a
	// [TicketError].
	Authenticate func(ctx context.Context, c Credentials) (Identity, error)

	// Route completes a request before it is dialed: which cluster, and what
	// the target is called there. [ByUser], [ByAuthority] and [ByTable] are
	// such functions. If nil, the cluster is that of the Identity. An error
	// that is or wraps syscall.EACCES refuses the request, another one calls
	// it malformed; its text reaches the client.
	Route func(ctx context.Context, r *Request) error

	// TLS makes the CONNECT and SOCKS5 doors speak TLS; ClientAuth and
	// ClientCAs in it are who may show a certificate. HTTP/2 is offered by
	// ALPN, unless its NextProtos says otherwise. If nil, they are plain.
	TLS *tls.Config

	// HandshakeTimeout bounds the time from the accepting of a connection to its
	// request. Zero means 10 seconds.
	HandshakeTimeout time.Duration
	// DialTimeout bounds Dial. Zero means 30 seconds.
	DialTimeout time.Duration
	// MaxConns is how many connections (and HTTP/2 streams) that were let in may
	// be open at once over all doors. Zero means 10,000.
	MaxConns int
	// MaxPending is how many connections may be there at once that are not let in
	// yet, over all doors. Zero means 1,000. When there is one more, another one is
	// closed in its place: the oldest that has sent nothing, of the source that has
	// most. A source is an IP address, or a network of IPv6 (/64); behind a load
	// balancer, and at a unix socket, all clients are one. Four times as many
	// wait, if all are busy; beyond that a client is refused at once (503). A client
	// has 16 KiB for its part of a handshake of TLS. One that has sent more than 4 KiB
	// of it has 2 seconds, and 32 such are under way at once, in turn by source.
	MaxPending int
	// MaxPerClient is how many one Identity may have open at once. Zero means
	// no limit but MaxConns.
	MaxPerClient int
	// MaxHeader is the size in bytes of a request's header, or of a
	// ClientHello. Zero means 16 KiB, and 64 KiB for a ClientHello.
	MaxHeader int
	// Grace is how long connections live on when the context of a Serve method
	// ends. Zero means 30 seconds; negative ends them at once.
	Grace time.Duration

	// Hooks see what happens.
	Hooks Hooks

	once sync.Once
	serveState
}

// Credentials are what a client showed, before it was let in.
type Credentials struct {
	Door Door
	// User and Password are of basic credentials or of SOCKS5.
	User, Password string
	// Bearer is the token of "Proxy-Authorization: Bearer". Empty if there is none.
	Bearer string
	// Certificates are the client's chain, leaf first, verified as the
	// Gateway's TLS says: by ClientCAs, or by its VerifyPeerCertificate or
	// VerifyConnection. What nobody has verified is not shown.
	Certificates []*x509.Certificate
	// ServerName is what the client's TLS asked for: of the SNI door, or of a
	// door with TLS.
	ServerName string
	// Address is the target as it was asked for, host:port. The SOCKS5 door
	// has none for Authenticate: a client names it after it was let in. The SNI
	// door has none at all.
	Address string
	// Remote is where the client came from; of a unix socket it says nothing.
	Remote net.Addr
}

// Shown reports whether the client showed anything to know it by.
func (c *Credentials) Shown() bool {
	return c.User != "" || c.Password != "" || c.Bearer != "" || len(c.Certificates) > 0
}

// Identity is who a client is.
type Identity struct {
	// Name is for limits, hooks and Status. It must not be a secret.
	Name string
	// Cluster is the one that the client may reach, if that is known from who
	// it is.
	Cluster string
}

// Request is what an authenticated client asks for.
type Request struct {
	Door   Door
	Client Identity
	// Credentials are what the client showed, without the secrets: the User,
	// the Certificates, the ServerName, the Remote.
	Credentials Credentials
	// Cluster is where to go.
	Cluster string
	// Address is the target, host:port. The SNI door has no host of its own:
	// Route gives one.
	Address string
}

var (
	// ErrCredentials is for an Authenticate that was shown nothing, or
	// something wrong: the client is asked for (other) credentials.
	ErrCredentials = errors.New("gateway: the credentials are missing or wrong")

	errNobody = errors.New("gateway: field Authenticate is nil: nobody is let in")
)

// Anyone lets everybody in, without a name. It is for a door that only those
// who may can reach: a unix socket in a directory of the right mode, or a
// listener on loopback in a pod of its own.
func Anyone(context.Context, Credentials) (Identity, error) { return Identity{}, nil }

var _ func(context.Context, Credentials) (Identity, error) = Anyone

// serveState is what a Gateway keeps of its doors.
type serveState struct {
	set      group.Set
	requests requestCounts
	// pending are the clients that are not let in yet.
	pending *admission.Admission

	connectTLS *tls.Config // the Gateway's, with the protocols of the CONNECT door
}

// checkFields checks the fields, once.
func (g *Gateway) checkFields() error {
	g.once.Do(func() {
		g.requests.setLimits(orDefault(g.MaxConns, 10_000), g.MaxPerClient)
		g.pending = admission.New(orDefault(g.MaxPending, 1000), 0)
		if g.TLS != nil {
			g.connectTLS = admission.Sparing(g.TLS.Clone())
			if len(g.TLS.NextProtos) == 0 {
				g.connectTLS.NextProtos = connectALPN
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
	return g.serveListener(ctx, l, &connectProtocol)
}

// ServeSOCKS5 is a SOCKS5 server (RFC 1928, CONNECT alone) with user name and
// password (RFC 1929). It serves as ServeConnect does.
func (g *Gateway) ServeSOCKS5(ctx context.Context, l net.Listener) error {
	return g.serveListener(ctx, l, &socks5Protocol)
}

// ServeSNI relays TLS connections by the server name that they ask for
// (RFC 6066, 3), without ending TLS: Route says which cluster and target a
// name stands for. It serves as ServeConnect does.
func (g *Gateway) ServeSNI(ctx context.Context, l net.Listener) error {
	return g.serveListener(ctx, l, &sniProtocol)
}

func (g *Gateway) serveListener(ctx context.Context, l net.Listener, p *protocol) error {
	if err := g.checkFields(); err != nil {
		l.Close()
		return err
	}
	return g.set.Serve(ctx, l, g.grace(), func(gr *group.Group, conn net.Conn) {
		defer conn.Close()
		g.serveClient(p, gr, conn)
	})
}

// Shutdown lets nobody in any more, waits until the connections have ended or
// the context has, and then ends what is left.
func (g *Gateway) Shutdown(ctx context.Context) error {
	if err := g.checkFields(); err != nil {
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

// Status is what a Gateway has done, and does at one moment.
type Status struct {
	// Ready: the Gateway was not shut down.
	Ready bool `json:"ready"`
	// Open connections and HTTP/2 streams, those in their handshake included.
	Open int `json:"open"`
	// Connections since the Gateway began, and those of them that failed
	// before a byte was relayed.
	Total  uint64 `json:"total"`
	Failed uint64 `json:"failed"`
	// BytesIn came from clients, BytesOut went to them, on connections that
	// have ended.
	BytesIn  uint64 `json:"bytesIn"`
	BytesOut uint64 `json:"bytesOut"`
	// Clients are the open connections by Identity; only with MaxPerClient.
	Clients map[string]int `json:"clients,omitempty"`
}

// Status returns what the Gateway knows now.
func (g *Gateway) Status() Status {
	if g.checkFields() != nil {
		return Status{}
	}
	v := &g.requests
	s := Status{
		Ready: !g.set.Closed(), Total: v.total.Load(), Failed: v.failed.Load(),
		BytesIn: v.in.Load(), BytesOut: v.out.Load(), Clients: map[string]int{},
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s.Open = v.open
	for name, n := range v.clients {
		s.Clients[name] = n
	}
	return s
}
