package tunnel

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
	"github.com/causewayproject/causeway/tunnel/internal/websocket"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Server is the end of the tunnel beside the controllers: agents connect to
// it, and [Server.Dialer] dials through them. Its methods are safe for
// concurrent use; its fields must not change after the first call.
type Server struct {
	// Name tells this replica from the others: it is what agents hear of, who
	// hold sessions with two where there are two. At most 64 bytes, without
	// spaces. If empty, it is random, and another one with each start.
	Name string
	// Authority signs the certificates of the server and of its agents.
	// Required; [Server.SetAuthority] replaces it.
	Authority *Authority
	// Identify returns who an agent is whose certificate is not one that the
	// Authority issues to agents: one of SPIFFE, or of a corporate PKI. Such an
	// agent does not enrol; see the Agent's GetClientCertificate. If nil, it is
	// refused.
	//
	// Identify MUST VERIFY THE CERTIFICATE. crypto/tls has checked that the
	// agent holds the key of state.PeerCertificates[0], and nothing else:
	// anybody can make such certificates, and VerifiedChains is empty. The
	// example shows how. Who comes without a certificate is refused before,
	// and so is an enrolled agent whose certificate expired or was revoked.
	//
	// The agent reads the code and the cause of an error that is an [*Error].
	// Of any other error it reads [CodeBadCertificate] and nothing else; the
	// hook Refused has all of it. An Identity whose names are empty, too long
	// or do not print is refused with [CodeInternal].
	//
	// The Store is asked whether the Identity was revoked, as for agents that
	// enrolled; it then stays so, whatever certificate comes with it. The
	// session ends with the certificate's NotAfter, unless the agent has another
	// session here by then, with a later certificate. Two sessions of one
	// Identity are one agent's, and the newest takes the streams, be it enrolled
	// or not: give no names that enrolments give (16 characters of a-z2-7) if
	// that must not be.
	//
	// Identify is called once for each session, by several goroutines at once.
	// It must return soon and not ask over the network, since
	// HandshakeTimeout can't end it, and Close waits for it.
	Identify func(state tls.ConnectionState) (Identity, error)
	// Peers says where the other replicas are. A dial whose cluster has no
	// session here goes to one that has; one hop, and the policy of the
	// Server that was asked is what counts. If nil, there are no others. If
	// not, the Server is to be ended by Shutdown or Close: the sessions with
	// its peers, by which it dials, begin with Serve, Handler or the first dial
	// that needs them, and outlive Serve.
	Peers Membership
	// PeerTransport carries the sessions with the other replicas, at the
	// addresses that Peers gives: a [WebSocket] with a private authority, say.
	// If nil, the form of each address decides, as [TransportFor] does.
	PeerTransport Transport
	// PeerDial makes the connections of the PeerTransport. If nil, a net.Dialer
	// does.
	PeerDial DialFunc
	// Store keeps tokens and revocations. If nil, memory does: a restart
	// forgets tokens that were not used yet, and revocations.
	Store Store
	// CertificateLife is how long an agent's certificate is valid; agents
	// renew at two thirds of it. Zero means 7 days.
	CertificateLife time.Duration
	// AllowDial decides whether the caller may dial; its error is the cause of
	// a [CodeForbidden]. The context is DialContext's. If nil, whoever has the
	// Server may dial every cluster; what a cluster's agents allow is theirs to say.
	AllowDial func(ctx context.Context, cluster, network, address string) error
	// Payloads returns what an agent is handed each time it connects. If nil,
	// nothing. See [Server.Push] for changes in between.
	Payloads func(ctx context.Context, id Identity) ([]Payload, error)
	// MaxStreams is how many streams a session carries at once; one more moves
	// to another agent, or fails with [CodeTooManyStreams]. Zero means 1,000.
	MaxStreams int
	// MaxPending is how many carriers may be in their handshake at once, each at
	// 24 KiB of memory at most and some 16 KiB of stack. Zero means 1,000. When
	// there is one more, another one is closed in its place: the oldest that has
	// sent nothing, of the source that has most. A source is an IP address, or a
	// network of IPv6 (/64). Four times as many wait, if all are busy. Each has a
	// file descriptor: a process that may open fewer than 5,000 wants less. Behind a
	// proxy all agents are one source, and so is what comes by [Server.Handler]
	// from one proxy.
	MaxPending int
	// HandshakeTimeout bounds the time from the accepting of a carrier to its
	// session, or its enrolment; the Store has two thirds of what is left of it
	// when it is asked, or else the agent would not hear why. Zero means 15
	// seconds. The first message of TLS has 5 seconds at most, and a handshake in
	// which the client sends more than 4 KiB, because of its chain of
	// certificates, or more than 2 KiB first, has 2 from there on, and 32 of them
	// are under way at once. 16 KiB are the most.
	HandshakeTimeout time.Duration
	// DialTimeout bounds a dial whose context has no deadline. Zero means 30
	// seconds.
	DialTimeout time.Duration
	// Grace is how long streams live on when the context of Serve ends. Zero
	// means 30 seconds; negative ends them at once.
	Grace time.Duration
	// KeepAlive finds dead carriers.
	KeepAlive KeepAlive
	// Hooks see what happens.
	Hooks Hooks

	once      sync.Once
	setupErr  error
	enroller  *enroller
	tls       *tls.Config // of its carriers
	authority atomic.Pointer[Authority]
	registry  registry
	peers     peers
	began     time.Time
	groups    group.Set
	seq       atomic.Uint64

	admission *admission.Admission

	name string // Name, or a random one

	announcing sync.Mutex // keeps the news to agents in their order; guards announced
	announced  []string   // the names of the servers that run
}

// KeepAlive says when a carrier is dead. Any byte from the other side is a
// sign of life.
type KeepAlive struct {
	// ProbeAfter is how long a carrier is silent before it is probed. Zero
	// means 10 seconds.
	ProbeAfter time.Duration
	// DeadAfter is how long a carrier is silent before it is given up. Zero
	// means 30 seconds.
	DeadAfter time.Duration
}

func (k KeepAlive) muxConfig(maxStreams int) *mux.Config {
	return &mux.Config{MaxStreams: maxStreams, ProbeAfter: k.ProbeAfter, DeadAfter: k.DeadAfter}
}

// setup compiles the fields, once.
func (s *Server) setup() error {
	s.once.Do(func() {
		if s.Authority == nil {
			s.setupErr = configError("field Authority of the Server is required: NewAuthority makes one")
			return
		}
		s.name = s.Name
		if s.name == "" {
			s.name = randomName()
		}
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
		s.enroller = &enroller{authority: s.authority.Load, store: store, life: s.CertificateLife, identifyOther: s.Identify}
		s.tls = s.enroller.serverTLS()
		s.groups.Leaving = s.drainGroup
		s.admission = admission.New(cmp.Or(s.MaxPending, 1000), carrier.HelloTimeout)
	})
	return s.setupErr
}

func (s *Server) grace() time.Duration { return max(cmp.Or(s.Grace, 30*time.Second), 0) }

// Serve accepts carriers until the context ends or the listener fails, and
// closes the listener. When the context ends, agents are told to connect
// elsewhere, no new streams are opened on the sessions that came by this
// listener, and they end with their last stream, at the latest after Grace.
// Then Serve returns nil; all its goroutines have ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := s.setup(); err != nil {
		l.Close()
		return err
	}
	s.peers.start()
	err := s.groups.Serve(ctx, socket.TuneListener(l, 0), s.grace(), s.serveCarrier)
	switch {
	case errors.Is(err, group.ErrClosed):
		return &Error{Op: "serve", Code: CodeClosed, Err: err}
	case err != nil:
		return &Error{Op: "serve", Code: CodeInternal, Err: err}
	}
	return nil
}

// Handler returns the handler of WebSocket carriers, for an http.Server behind
// a load balancer that knows HTTP. It serves each carrier in the request's
// goroutine. The http.Server decides what a client may cost before its request is
// whole: set ReadHeaderTimeout and MaxHeaderBytes, and limit the connections.
// Without a load balancer in front use [WebSocket.Listen], which is bounded.
// [Server.Shutdown] ends the sessions; http.Server.Shutdown does not wait for
// them.
func (s *Server) Handler() http.Handler {
	if s.setup() == nil {
		s.peers.start() // replicas behind handlers would all wait for the first carrier
	}
	return websocket.Handler(func(conn net.Conn) {
		serve := func(g *group.Group) {
			s.peers.start()
			apart(func() { s.serveCarrier(g, conn) }) // Join may wait for hours
		}
		if s.setup() != nil || s.groups.Join(serve) != nil {
			conn.Close()
		}
	})
}

// Shutdown drains every session, as the end of Serve's context does, until
// they have ended or the context ends; then it closes what is left, and waits
// for it. Afterwards the Server takes neither carriers nor dials.
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
// goroutines. To who has a stream it is a reset (ECONNRESET), as the loss of the
// agent would be.
func (s *Server) Close() error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ended); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// drainGroup asks the group's agents, and its peers, to leave.
func (s *Server) drainGroup(g *group.Group) {
	if !s.groups.Open() {
		s.peers.startDraining()
	}
	for _, p := range s.peers.inboundOf(g) {
		p.Send(wire.New(wire.MsgDrain))
	}
	for _, sess := range s.registry.of(g) {
		s.retireSession(sess)
	}
}

// retireSession gives the session no more streams, and tells its agent.
func (s *Server) retireSession(sess *agentSession) {
	sess.Retire()
	sess.sendOrClose(wire.New(wire.MsgDrain))
}

// SetAuthority replaces the authority: certificates are issued by it from now
// on, agents that are connected learn whom to trust, and agents of any
// authority in it are let in. To roll over without refusing an agent, first
// add the new certificate to Trusted, then make it the issuing one with the
// old in Trusted, and drop the old one a CertificateLife later.
//
// Sessions with agents and with other replicas whose certificate is of no
// authority in it end, with their streams, before SetAuthority returns: an agent
// needs a new invitation then. What counts is the latest certificate whose key was
// proven on the connection: that of its handshake, or of a renewal by it. After the
// last step of a rollover that leaves out only streams that are older than their
// agent's, or replica's, first certificate of the new authority.
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
	sessions = s.registry.all()
	m := a.addRoots(wire.New(wire.MsgRoots))
	for _, sess := range sessions {
		sess.sendOrClose(m)
	}
	return was, sessions
}

// Invite makes what one agent needs to enrol for the cluster, here or at any
// replica that has the same Store and trusts the Authority. The token is good
// for one agent until life (zero: 1 hour) has passed. Servers is for the caller
// to fill.
func (s *Server) Invite(ctx context.Context, cluster string, life time.Duration) (Invitation, error) {
	if err := s.setup(); err != nil {
		return Invitation{}, err
	}
	token, expires, err := s.enroller.invite(ctx, cluster, life)
	if err != nil {
		return Invitation{}, err
	}
	return Invitation{Cluster: cluster, Token: token, Pin: s.authority.Load().Pin(), Expires: expires}, nil
}

// Revoke ends the agent's sessions and streams, and refuses it from now on.
// Replicas that are connected by Peers do the same at once, others as soon as
// they are. Servers that share no more than the Store refuse it too, and end its
// sessions when they next look, at the latest when it connects anew or renews.
func (s *Server) Revoke(ctx context.Context, id Identity) error {
	if err := s.setup(); err != nil {
		return err
	}
	if err := s.enroller.store.Revoke(ctx, id); err != nil {
		return err
	}
	s.closeRevoked(id)
	s.peers.sendToAll(revokedMessage(id))
	return nil
}

// closeRevoked ends the sessions of an agent that was revoked.
func (s *Server) closeRevoked(id Identity) {
	for _, sess := range s.registry.revoke(id) {
		sess.CloseWithCause(&Error{Op: "connect", Cluster: id.Cluster, Code: CodeRevoked})
	}
}
