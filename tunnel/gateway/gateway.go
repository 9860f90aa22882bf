package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/budget"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
)

// Door is a protocol by which clients reach a Gateway.
type Door string

const (
	DoorConnect Door = "connect" // HTTP CONNECT, see [Gateway.ServeConnect]
	DoorSOCKS5  Door = "socks5"  // see [Gateway.ServeSOCKS5]
	DoorSNI     Door = "sni"     // see [Gateway.ServeSNI]
)

// Gateway accepts clients by one or more doors, authenticates them, and relays each
// to the target that Dial connects. Its methods are safe for concurrent use; its
// fields must not change after the first call.
type Gateway struct {
	// Dial connects the target that a client asked for. Required. The context ends
	// when the client hangs up, or after DialTimeout. The Gateway closes the
	// connection. The text of an error reaches the client if the door's protocol has
	// room for it, so it must hold no secret. [Unavailable] and [Limited] are errors
	// that say when to try again.
	Dial func(ctx context.Context, r Request) (net.Conn, error)

	// Authenticate returns the client's identity, or why it is refused. If nil, all
	// clients are refused. [Tickets] and package tunnel/kubernetes have
	// such functions; [FirstOf] joins several of them; use [Anyone] for doors that
	// only permitted clients can reach.
	//
	//	the error                          the client gets
	//	is or wraps syscall.EACCES         403: other credentials would not help
	//	is or wraps an [Unavailable]       503: try again later
	//	another one                        407
	//
	// SOCKS5 has "general failure" and TLS an alert for it. Hooks get the text;
	// the client sees only that of a [TicketError].
	Authenticate func(ctx context.Context, c Credentials) (Identity, error)

	// Route completes a request before it is dialed: the cluster, and the target's
	// address there. [ByUser], [ByAuthority] and [ByTable] are such functions. If
	// nil, the cluster is that of the Identity. An error that is or wraps
	// syscall.EACCES refuses the request (403), another one is an unknown
	// destination (400). Its text reaches the client.
	Route func(ctx context.Context, r *Request) error

	// TLS, if not nil, makes the CONNECT and SOCKS5 doors speak TLS. Its ClientAuth
	// and ClientCAs say which client certificates are accepted. ALPN offers HTTP/2,
	// unless NextProtos is set (here, or in what GetConfigForClient returns). If nil, the
	// doors are plain.
	TLS *tls.Config

	// HandshakeTimeout bounds the time from the acceptance of a connection to the
	// end of its request. Zero means 10 seconds.
	HandshakeTimeout time.Duration
	// DialTimeout bounds Dial. Zero means 30 seconds.
	DialTimeout time.Duration
	// MaxConns bounds the connections and HTTP/2 streams of authenticated clients
	// that are open at once, over all doors. Zero means 10,000. An Identity may have three times
	// as many as are still free.
	MaxConns int
	// MaxPending bounds the connections that are not authenticated yet, over all
	// doors. Zero means 1,000. One more closes another one: the oldest that has sent
	// nothing, of the source that has most. A source is an IPv4 address or an IPv6
	// network (/64); behind a load balancer, and at a unix socket, all clients are
	// one source. If none can be closed, up to four times as many wait, and beyond
	// that a client is refused at once (503). A client may send 16 KiB in a TLS
	// handshake; one that sends more than 4 KiB has 2 seconds for it, and 32 such
	// handshakes run at once, in turn by source.
	MaxPending int
	// MaxPerClient bounds the open connections of one Identity. Zero means no limit
	// except MaxConns.
	MaxPerClient int
	// MaxHeader is the largest size of a request's header, or of a ClientHello, in
	// bytes. Zero means 16 KiB, and 64 KiB for a ClientHello.
	MaxHeader int
	// Budget bounds what waits in memory for all clients: a
	// [github.com/causewayproject/causeway/tunnel.Budget], best that of the Server. If nil, it is
	// shared by all of the process that have none, and is 256 MiB. Dial should name the client
	// with tunnel.WithCaller: else all clients are one holder in the tunnel.
	Budget *budget.Budget
	// Grace is how long connections live on when the context of a Serve method
	// ends. Zero means 30 seconds; if negative, they end at once.
	Grace time.Duration

	// Hooks are called when something happens.
	Hooks Hooks

	once sync.Once
	serveState
}

// Credentials are what a client showed to be authenticated.
type Credentials struct {
	Door Door
	// User and Password are those of basic authentication or of SOCKS5.
	User, Password string
	// Bearer is the token of "Proxy-Authorization: Bearer". Empty without one.
	Bearer string
	// Certificates are the client's chain, leaf first, verified as the
	// Gateway's TLS says: by ClientCAs, or by its VerifyPeerCertificate or
	// VerifyConnection. A chain that was not verified is left out.
	Certificates []*x509.Certificate
	// ServerName is the server name (SNI) that the client's TLS asked for, at the
	// SNI door or a door with TLS.
	ServerName string
	// Address is the target that was asked for, host:port. It is empty at the
	// SOCKS5 door, where a client names its target after it was authenticated, and
	// at the SNI door.
	Address string
	// Remote is the client's address. That of a unix socket says nothing.
	Remote net.Addr
}

// Identity says which client it is.
type Identity struct {
	// Name is used for limits, hooks and Status. It must not be a secret.
	Name string
	// Cluster is the only cluster that the client may reach. If empty, Route
	// decides.
	Cluster string
}

// Request is what an authenticated client asks for.
type Request struct {
	Door   Door
	Client Identity
	// Credentials are what the client showed, without Password and Bearer.
	Credentials Credentials
	// Cluster is the cluster of the target.
	Cluster string
	// Address is the target, host:port. At the SNI door, Route sets it.
	Address string

	early *[]byte // of TakeEarly; nil if there are none
}

// TakeEarly is for Dial, and returns the first bytes that the client has sent for the
// target already: a Dial that takes them writes them, and otherwise the Gateway does. With
// [github.com/causewayproject/causeway/tunnel.Dialer.DialEarly] they save a round trip.
// They are at most 16 KiB, and only what may come twice: the beginning of a TLS handshake,
// which clients of the SNI door always send. It returns nil if there are none, and
// in a second call.
func (r Request) TakeEarly() []byte {
	if r.early == nil {
		return nil
	}
	early := *r.early
	*r.early = nil
	return early
}

var (
	// ErrCredentials is the error of an Authenticate for missing or wrong
	// credentials: the client is asked for others.
	ErrCredentials = errors.New("gateway: the credentials are missing or wrong")

	errNobody = errors.New("gateway: field Authenticate is nil: nobody is let in")
)

// Anyone is an Authenticate that lets every client in, without a name. Use it for a
// door that only permitted clients can reach: a unix socket in a directory of the
// right mode, or a listener on loopback in a pod of its own.
func Anyone(context.Context, Credentials) (Identity, error) { return Identity{}, nil }

var _ func(context.Context, Credentials) (Identity, error) = Anyone

// serveState is the state of a Gateway that serves.
type serveState struct {
	set      group.Set
	requests requestCounts
	accounts clientAccounts
	// pending holds the connections that are not authenticated yet.
	pending *admission.Admission

	connectTLS *tls.Config // the Gateway's, with the protocols of the CONNECT door
}

// checkFields checks the fields, and sets up the Gateway by them, once.
func (g *Gateway) checkFields() error {
	g.once.Do(func() {
		v := &g.requests
		v.maxOpen, v.maxPerClient, v.clients = cmp.Or(g.MaxConns, 10_000), g.MaxPerClient, map[string]int{}
		g.pending = admission.New(cmp.Or(g.MaxPending, 1000), 0)
		if g.TLS != nil {
			g.connectTLS = admission.LimitMessages(g.TLS.Clone(), connectALPN...)
		}
	})
	if g.Dial == nil {
		return errors.New("gateway: field Dial is required")
	}
	return nil
}

func (g *Gateway) handshakeTimeout() time.Duration {
	return cmp.Or(g.HandshakeTimeout, 10*time.Second)
}

func (g *Gateway) budget() *budget.Budget { return cmp.Or(g.Budget, &budget.Process) }

func (g *Gateway) grace() time.Duration { return max(cmp.Or(g.Grace, 30*time.Second), 0) }

// ServeConnect serves an HTTP proxy that only knows CONNECT, on TCP and unix
// sockets, by HTTP/1.1 and HTTP/2 (by prior knowledge, or by ALPN if TLS is set). It
// serves until the context ends or the listener fails, closes the listener, and
// returns when all connections have ended, which may live on for Grace. The error is
// the listener's; nil when the context has ended and after Shutdown.
//
// A client can tell a connection that was cut from one that has ended: it sees a
// reset of TCP or of the stream, or TLS without a close_notify. A unix socket has no
// reset: there, the protocol inside (usually TLS) has to tell.
//
// An HTTP/2 connection counts for MaxConns, and so does each of its streams. A
// connection without a stream is closed after two minutes.
func (g *Gateway) ServeConnect(ctx context.Context, l net.Listener) error {
	return g.serveListener(ctx, l, &connectProtocol)
}

// ServeSOCKS5 serves a SOCKS5 proxy (RFC 1928) with the command CONNECT and user
// name and password (RFC 1929), in the same way as ServeConnect.
func (g *Gateway) ServeSOCKS5(ctx context.Context, l net.Listener) error {
	return g.serveListener(ctx, l, &socks5Protocol)
}

// ServeSNI relays TLS connections by the server name that they ask for (RFC 6066,
// 3), without terminating TLS: Route sets the cluster and target of a name. It
// serves in the same way as ServeConnect.
func (g *Gateway) ServeSNI(ctx context.Context, l net.Listener) error {
	return g.serveListener(ctx, l, &sniProtocol)
}

func (g *Gateway) serveListener(ctx context.Context, l net.Listener, p *protocol) error {
	if err := g.checkFields(); err != nil {
		l.Close()
		return err
	}
	return g.set.Serve(ctx, socket.TuneListener(l), g.grace(), func(gr *group.Group, conn net.Conn) {
		defer conn.Close()
		g.serveClient(p, gr, conn)
	})
}

// Shutdown accepts no more clients, waits until the connections or the context have
// ended, and then resets the connections that are left.
func (g *Gateway) Shutdown(ctx context.Context) error {
	if err := g.checkFields(); err != nil {
		return err
	}
	return g.set.Shutdown(ctx)
}

// Close resets all connections and waits for the Gateway's goroutines.
func (g *Gateway) Close() error { return group.CloseNow(g.Shutdown) }

// Status is a snapshot of a Gateway.
type Status struct {
	// Ready is true until the Gateway is shut down.
	Ready bool `json:"ready"`
	// Open counts the open connections and HTTP/2 streams, those in their handshake
	// included.
	Open int `json:"open"`
	// Pending counts the connections that are not authenticated yet (see MaxPending),
	// and Waiting those that wait to be read.
	Pending int `json:"pending"`
	Waiting int `json:"waiting"`
	// Total counts all connections and streams, and Failed only failures before
	// a byte was relayed.
	Total  uint64 `json:"total"`
	Failed uint64 `json:"failed"`
	// BytesIn counts bytes from clients and BytesOut bytes to them, of connections
	// that have ended.
	BytesIn  uint64 `json:"bytesIn"`
	BytesOut uint64 `json:"bytesOut"`
	// Clients counts the open connections by Identity. It needs MaxPerClient.
	Clients map[string]int `json:"clients,omitempty"`
}

// Status returns a snapshot.
func (g *Gateway) Status() Status {
	if g.checkFields() != nil {
		return Status{}
	}
	v := &g.requests
	s := Status{
		Ready: !g.set.Closed(), Total: v.total.Load(), Failed: v.failed.Load(),
		BytesIn: v.in.Load(), BytesOut: v.out.Load(),
	}
	s.Pending, s.Waiting = g.pending.Load()
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.Open = v.open; v.maxPerClient > 0 {
		s.Clients = maps.Clone(v.clients)
	}
	return s
}
