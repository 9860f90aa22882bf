package tunnel

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/budget"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Server is the end of the tunnel beside the controllers: agents connect to
// it, and [Server.Dialer] dials through them. Its methods are safe for
// concurrent use; its fields must not change after the first call.
type Server struct {
	// Name tells this replica from the others. Agents get the names of all
	// replicas, and keep sessions with two of them. At most 64 bytes, without
	// spaces. If empty, it is random, and changes with each start.
	Name string
	// Authority signs the certificates of the server and of its agents.
	// Required. [Server.SetAuthority] replaces it.
	Authority *Authority
	// Enroller lets agents in by tokens that are not the Authority's, such as those of
	// a ServiceAccount. If nil, only tokens of invitations count.
	Enroller Enroller
	// Peers says where the other replicas are. If a dial's cluster has no session
	// here, the dial is forwarded to a replica that has one, over one hop; only the
	// policy of the Server that got the dial applies. If nil, there are no other
	// replicas. Otherwise the Server must be ended by Shutdown or Close: its sessions
	// with the peers begin with Serve or the first dial that needs them,
	// and outlive Serve.
	Peers Membership
	// PeerDial makes the connections to the other replicas. If nil, a net.Dialer does.
	PeerDial DialFunc
	// Store keeps tokens and revocations. If nil, they are kept in memory: a restart
	// forgets revocations, and tokens that were not used yet.
	Store Store
	// CertificateLife is how long an agent's certificate is valid; agents
	// renew at two thirds of it. Zero means 7 days.
	CertificateLife time.Duration
	// AllowDial decides whether the caller may dial; its error is the cause of a
	// [CodeForbidden]. The context is DialContext's. If nil, every dial is allowed.
	// The agents of the cluster still apply their own Targets.
	AllowDial func(ctx context.Context, cluster, network, address string) error
	// Payloads returns the payloads that an agent gets each time it connects. If
	// nil, it gets none. See [Server.Push] for changes in between.
	Payloads func(ctx context.Context, id Identity) ([]Payload, error)
	// MaxStreams is how many streams a session carries at once. One more goes to
	// another agent, or fails with [CodeTooManyStreams]. So does the dial of a caller (see [WithCaller]), or
	// of another replica, that has three times as many there as are free. Zero means 1,000.
	MaxStreams int
	// MaxPending is how many carriers may be in their handshake at once, each with
	// at most 24 KiB of memory and some 16 KiB of stack. Zero means 1,000. If one
	// more comes, the server closes another: the oldest that has sent nothing, of the
	// source with the most carriers. A source is an IP address, or a /64 network of
	// IPv6; all agents behind one proxy are one source. If all carriers are busy, up
	// to four times as many wait. Each needs a file descriptor: set less in a process
	// that may open fewer than 5,000.
	MaxPending int
	// HandshakeTimeout bounds the time from accepting a carrier to its session or
	// enrolment. Zero means 15 seconds. A call of the Store may take two thirds of
	// what is left of it, so that there is time to tell the agent about a failure.
	// The first message of TLS has to come within 5 seconds. A handshake in which the
	// client sends more than 4 KiB, for a chain of certificates, or a first message
	// of more than 2 KiB has 2 more seconds, and at most 32 of these are under way at
	// once. More than 16 KiB are refused.
	HandshakeTimeout time.Duration
	// DialTimeout bounds a dial whose context has no deadline. Zero means 30
	// seconds.
	DialTimeout time.Duration
	// Grace is how long open streams may go on after the context of Serve has ended.
	// Zero means 30 seconds; a negative Grace ends them at once.
	Grace time.Duration
	// KeepAlive detects dead carriers.
	KeepAlive KeepAlive
	// Budget bounds what waits in memory. If nil, it is shared by all of the process that have
	// none, Gateways included, and is 256 MiB.
	Budget *Budget
	// Hooks are called when something happens.
	Hooks Hooks

	once      sync.Once
	setupErr  error
	registrar *registrar
	tls       *tls.Config // of its carriers
	authority atomic.Pointer[Authority]
	registry  registry
	failures  dialFailures
	refusals  refusals
	peers     peers
	began     time.Time
	groups    group.Set
	seq       atomic.Uint64

	admission *admission.Admission

	name string // Name, or a random one

	announcing sync.Mutex // keeps messages to all agents in order; guards announced
	announced  []string   // the names of servers that run, maxAnnounced at most

	announceWaits atomic.Bool // announceSoon has begun
}

// KeepAlive says when a carrier is dead. Any byte from the other side is a
// sign of life.
type KeepAlive struct {
	// ProbeAfter is how long a carrier is silent at most before it is probed: those of a
	// process are probed together, up to an eighth of it earlier. Zero means 10 seconds,
	// of an Agent 12: so the two ends do not probe at once. It is half of DeadAfter at most.
	// What is negative is off: then an idle carrier ends after DeadAfter.
	ProbeAfter time.Duration
	// DeadAfter is how long a carrier is silent before it is given up. Zero
	// means 30 seconds. If it is negative, silence ends none.
	DeadAfter time.Duration
}

// Budget bounds the bytes that wait in the Servers, Agents and Gateways that share it: nobody
// has read them yet, or the other end has not taken them. Its field Bytes is how many that may
// be; zero means 256 MiB. If there are more, streams are reset with [CodeBudget].
//
// Each cluster has an equal part, and in it each holder: a caller (see [WithCaller]), a client
// of a Gateway by HTTP/2, another replica for all its callers, or the cluster's agents. Only who
// has more loses streams. Those that nobody reads go first, and of these first those of the holder
// with most. A connection ends if its other end has taken nothing of what waits, or has sent no
// more of a piece of data, for 5 seconds.
//
// Beside it Linux keeps some 256 KiB for a connection to a client or a target that does not read,
// and up to net.ipv4.tcp_rmem (6 MB) of what a client sends to a target that does not.
//
// Share a Budget before its first use, and do not copy it.
type Budget = budget.Budget

// muxConfig makes the Config of a session. The holder is who is on the other side: see
// mux.Config.
func muxConfig(maxStreams int, k KeepAlive, b *Budget, holder any) *mux.Config {
	return &mux.Config{MaxStreams: maxStreams, ProbeAfter: k.ProbeAfter, DeadAfter: k.DeadAfter, Budget: b, Holder: holder}
}

// setup compiles the fields, once.
func (s *Server) setup() error {
	s.once.Do(func() {
		if s.Authority == nil {
			s.setupErr = configError("field Authority of the Server is required: NewAuthority makes one")
			return
		}
		if s.setupErr = s.Authority.check(); s.setupErr != nil {
			return
		}
		s.name = cmp.Or(s.Name, randomName())
		if err := wire.CheckReplica(s.name); err != nil {
			s.setupErr = configError("field Name of the Server: %w", err)
			return
		}
		s.announced, s.began = []string{s.name}, time.Now()
		s.peers.server, s.peers.id = s, rand.Text()
		s.authority.Store(s.Authority)
		store := s.Store
		if store == nil {
			store = &MemoryStore{}
		}
		s.registrar = &registrar{authority: s.authority.Load, records: &Records{Store: store}, life: s.CertificateLife, enroller: s.Enroller}
		s.registry.life = s.registrar.agentLife()
		s.tls = s.registrar.serverTLS()
		s.groups.Leaving = s.drainGroup
		s.peers.places, s.peers.pushes = admission.New(maxInbound, 0), make(chan struct{}, maxPushes)
		s.admission = admission.New(cmp.Or(s.MaxPending, 1000), carrier.HelloTimeout)
	})
	return s.setupErr
}

func (s *Server) grace() time.Duration { return max(cmp.Or(s.Grace, 30*time.Second), 0) }

// Serve accepts carriers until the context ends or the listener fails, and
// closes the listener. When the context ends, it tells the agents to connect
// elsewhere and opens no new streams on the sessions of this listener. Each session
// ends with its last stream, after Grace at the latest. Then Serve returns nil; all
// its goroutines have ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := s.setup(); err != nil {
		l.Close()
		return err
	}
	s.peers.start()
	if ws, ok := l.(interface {
		HandleRefused(func(context.Context, net.Addr, error))
	}); ok {
		ws.HandleRefused(func(ctx context.Context, remote net.Addr, err error) {
			s.reportRefused(remote, handshakeError(ctx, "connect", "", err))
		})
	}
	err := s.groups.Serve(ctx, l, s.grace(), s.serveCarrier)
	switch {
	case errors.Is(err, group.ErrClosed):
		return &Error{Op: "serve", Code: CodeClosed, Err: err}
	case err != nil:
		return &Error{Op: "serve", Code: CodeInternal, Err: err}
	}
	return nil
}

// Shutdown drains every session, as the end of Serve's context does. When all have
// ended, or the context ends, it closes the rest and waits for that. Afterwards the
// Server accepts neither carriers nor dials.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.setup(); err != nil {
		return err
	}
	s.peers.startDraining() // while there is somebody to tell
	var wg sync.WaitGroup
	wg.Go(func() { s.peers.close(ctx) })
	s.groups.Shutdown(ctx)
	wg.Wait()
	return ctx.Err()
}

// whyClosed is why the sessions of a group end when its context does.
func (s *Server) whyClosed(cluster string) error {
	cause := errGrace
	if s.groups.Closed() {
		cause = group.ErrClosed
	}
	return &Error{Op: "connect", Cluster: cluster, Code: CodeClosed, Err: cause}
}

// Close ends every session and stream at once, and waits for the Server's
// goroutines. The user of a stream gets a reset (ECONNRESET), as if the agent were
// lost.
func (s *Server) Close() error { return group.CloseNow(s.Shutdown) }

// drainGroup asks the group's agents, and its peers, to leave.
func (s *Server) drainGroup(g *group.Group) {
	if !s.groups.Open() {
		s.peers.startDraining()
	}
	for _, p := range s.peers.inboundOf(g) {
		p.Send(wire.New(wire.MsgDrain))
	}
	for _, sess := range s.registry.sessionsWhere(func(sess *agentSession) bool { return sess.Group == g }) {
		s.retireSession(sess)
	}
}

// retireSession gives the session no more streams, and tells its agent.
func (s *Server) retireSession(sess *agentSession) {
	sess.Retire()
	sess.sendOrClose(wire.New(wire.MsgDrain))
}

// SetAuthority replaces the authority. From now on a issues certificates, agents
// that are connected learn whom to trust, and agents of any authority in a are
// admitted. To roll over without refusing an agent, first add the new certificate to
// Trusted, then let it issue with the old one in Trusted, and drop the old one a
// CertificateLife later.
//
// Sessions with agents and with other replicas end, with their streams, before
// SetAuthority returns, if no authority in a has signed their certificate. Such an
// agent needs a new invitation. The certificate that counts is the latest whose key
// was proven on the connection: in its handshake, or by a renewal on it. So the last
// step of a rollover only ends streams that are older than the first certificate of
// the new authority that their agent or replica got.
func (s *Server) SetAuthority(a *Authority) error {
	if err := s.setup(); err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return err
	}
	was, sessions := s.replaceAuthority(a)
	var wg sync.WaitGroup
	for _, sess := range sessions {
		wg.Go(func() { sess.closeUntrusted(a) })
	}
	s.peers.closeUntrusted()
	wg.Wait()
	if !was.Certificate.Equal(a.Certificate) {
		s.peers.replaceAll()
	}
	return nil
}

// replaceAuthority tells the agents, and returns the authority before and the
// sessions that there are.
func (s *Server) replaceAuthority(a *Authority) (was *Authority, sessions []*agentSession) {
	s.announcing.Lock()
	defer s.announcing.Unlock()
	was = s.authority.Swap(a)
	sessions = s.registry.allSessions()
	m := a.addRoots(wire.New(wire.MsgRoots))
	for _, sess := range sessions {
		sess.sendOrClose(m)
	}
	return was, sessions
}

// Hooks are called for what a Server does. Each may be nil, and must return soon:
// the Server waits for it. None gets the address of a target, so that labels of
// metrics stay few.
type Hooks struct {
	// Connected is called when a session takes streams: dials from now on
	// can use it.
	Connected func(SessionInfo)
	// Disconnected is called when a session has ended; err is nil if the
	// agent ended it in order. Streams and byte counts are final.
	Disconnected func(s SessionInfo, err error)
	// Refused is called for each carrier, enrolment or renewal that is refused.
	// Err is an *[Error], remote the other end's address. It names a cluster only if a
	// token or a certificate that was verified does. [CodeHeld] is no
	// failure: an agent was looking for another replica. [CodeTooManyStreams]
	// means that the carrier made room for another one (see MaxPending). Strangers
	// can cause thousands in a second: count them, and log only a few.
	Refused func(remote net.Addr, err error)
	// Enrolled is called when an agent got its first certificate.
	Enrolled func(id Identity)
	// Renewed is called when an agent got another certificate, valid until
	// the time given.
	Renewed func(id Identity, until time.Time)
	// Dialed is called at the end of each DialContext with the time it took;
	// err is nil or the *[Error] that it returns, without Addr.
	Dialed func(cluster string, took time.Duration, err error)
	// Delivered is called for each payload that Payloads returned, with the
	// agent's answer, or with the error if no answer came.
	Delivered func(id Identity, name string, err error)
	// Forwarded is called for each dial that other replicas were asked for, at
	// its end and before Dialed. Took begins with the question which of them has
	// an agent.
	Forwarded func(cluster string, took time.Duration, err error)
	// PeerConnected is called when a session with another replica takes
	// dials, PeerDisconnected when it has ended; err is nil if in order.
	PeerConnected    func(name string)
	PeerDisconnected func(name string, err error)
	// PeerFailed is called when an attempt to connect to another replica has failed,
	// or was refused. Address is the one that Peers gives, without the password of a
	// URL. The next attempt follows after 10 seconds at most.
	PeerFailed func(address string, err error)
}

func callHook1[A any](hook func(A), a A) {
	if hook != nil {
		hook(a)
	}
}

func callHook2[A, B any](hook func(A, B), a A, b B) {
	if hook != nil {
		hook(a, b)
	}
}

func callHook3[A, B, C any](hook func(A, B, C), a A, b B, c C) {
	if hook != nil {
		hook(a, b, c)
	}
}

// withoutTarget returns the error without the target's address.
func withoutTarget(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		without := *e
		without.Addr = ""
		err = &without
	}
	return err
}

// serveCarrier serves a new carrier. It returns when the carrier has ended, or when a
// session has begun, which then stays in the group.
func (s *Server) serveCarrier(g *group.Group, conn net.Conn) {
	serve, err := s.admit(g, conn)
	if err != nil {
		s.reportRefused(conn.RemoteAddr(), err)
	}
	if serve != nil {
		serve() // its session has the carrier
		return
	}
	conn.Close()
}

// onOwnStack runs f on its own goroutine, and waits, so that f's stack is freed when it
// returns. That of a handshake would else stay with a goroutine that waits for hours.
func onOwnStack(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	wg.Wait()
}

// admit returns the function that serves the session of a new carrier. It is nil if the
// carrier was for an enrolment, or was refused.
func (s *Server) admit(g *group.Group, conn net.Conn) (serve func(), err error) {
	ctx, cancel := context.WithTimeout(g.Context(), cmp.Or(s.HandshakeTimeout, 15*time.Second))
	defer cancel()
	p, err := s.admission.Enter(ctx, conn)
	if err != nil {
		return nil, handshakeError(ctx, "connect", "", err)
	}
	defer p.Leave()
	ctx = p.Context()
	c, err := carrier.Accept(p, conn, s.tls)
	if err != nil {
		return nil, handshakeError(ctx, "connect", "", err)
	}
	switch c.State().NegotiatedProtocol {
	case protoEnroll:
		s.serveEnrolment(ctx, c)
	case protoTunnel:
		var sess *agentSession
		if sess, err = s.acceptAgent(ctx, g, c); err == nil {
			return func() { s.serveSession(sess) }, nil
		}
	case protoPeer:
		var peer *inboundPeer
		if peer, err = s.acceptPeer(ctx, g, c); err == nil {
			return peer.start, nil
		}
	default:
		err = &Error{Op: "connect", Code: CodeVersion, Err: errors.New("the client offered no protocol of the tunnel by ALPN")}
	}
	c.Close()
	return nil, err
}

// handshakeError returns the error of a carrier on which no session and no enrolment began.
func handshakeError(ctx context.Context, op, cluster string, err error) *Error {
	switch cause := context.Cause(ctx); {
	case errors.Is(err, admission.ErrCrowded):
		return &Error{Op: op, Cluster: cluster, Code: CodeTooManyStreams, Err: err}
	case errors.Is(cause, admission.ErrCrowded):
		return &Error{Op: op, Cluster: cluster, Code: CodeTooManyStreams, Err: cause}
	case errors.Is(cause, context.DeadlineExceeded):
		return &Error{Op: op, Cluster: cluster, Code: CodeTimeout, Err: errors.New("the handshake was not complete within HandshakeTimeout")}
	case cause != nil:
		return &Error{Op: op, Cluster: cluster, Code: CodeClosed, Err: cause}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{Op: op, Cluster: cluster, Code: CodeTimeout, Err: err}
	}
	return &Error{Op: op, Cluster: cluster, Code: CodeBadRequest, Err: err}
}

// checkWelcome returns an error unless the answer to HELLO is a WELCOME.
func checkWelcome(answer *wire.Message, cluster, server string) error {
	switch {
	case answer.Kind == wire.MsgRefusal:
		if err := messageError(answer, "connect", cluster, server); err != nil {
			return err
		}
		return wire.ErrMalformed
	case answer.Kind != wire.MsgWelcome || answer.Uint(wire.TagVersion) != wire.Version:
		return &Error{Op: "connect", Addr: server, Code: CodeVersion, Err: wire.ErrMalformed}
	}
	return nil
}

// acceptHello accepts the control stream and reads HELLO. If the version is not ours,
// or check returns an error, it sends a REFUSAL, and the session ends.
func acceptHello(ctx context.Context, m *mux.Session, cluster string, check func(hello *wire.Message) *Error) (*mux.Stream, *wire.Message, error) {
	control, hello, err := session.ReadHello(ctx, m)
	if err != nil {
		m.Close()
		return nil, nil, handshakeError(ctx, "connect", cluster, err)
	}
	refused := &Error{Op: "connect", Cluster: cluster, Code: CodeVersion}
	if hello.Speaks() {
		refused = check(hello)
	}
	if refused != nil {
		session.AnswerLast(ctx, control, refusalOf(wire.MsgRefusal, refused))
		m.Close()
		return nil, nil, refused
	}
	return control, hello, nil
}
