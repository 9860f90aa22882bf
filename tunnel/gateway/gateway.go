package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"time"
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
	doors
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
