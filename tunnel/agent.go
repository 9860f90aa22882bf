package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/internal/group"
	"github.com/causewayproject/causeway/internal/mask"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/internal/rotate"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/target"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Agent is the end of the tunnel beside a cluster: it dials out to a Server
// and dials targets for it. If the Server has replicas, the agent keeps sessions
// with two of them, so that one may go. Its fields must not change while Run runs.
type Agent struct {
	// Servers are addresses of one Server, or of its replicas, or of a load
	// balancer in front of them: host:port, or a ws or wss URL. They are tried in
	// turn. So are the addresses of a server's name, and of a proxy's, if Dial is nil
	// or a dialer of package dialer: without a wait between them, and in each round first the
	// one that worked last. If empty, the agent uses those of the invitation, and once it has a
	// certificate and no invitation, those of the last invitation, which Credentials keeps.
	Servers []string
	// Dial connects to a server, for example through a corporate proxy. If nil, a
	// net.Dialer does.
	Dial DialFunc
	// WebSocketTLS is the configuration of the outer TLS of a wss URL, which a load balancer
	// may terminate. Nil means the system's roots, and an empty ServerName the URL's host.
	WebSocketTLS *tls.Config
	// Credentials keeps the agent's key and certificate. Required.
	Credentials CredentialStore
	// Replica is the name of this process among the agents that share Credentials, such as
	// the pod's name. To the Server they are separate agents of one Identity: dials use
	// all of them, and a new session replaces older ones of the same Replica only. At most 63 bytes, printable, without spaces and
	// bars. If empty, nobody else uses them.
	//
	// Agents that share Credentials also share the renewals: one renews, and the others
	// load what it has saved. [CredentialStore] says what their stores must do.
	Replica string
	// Invitation returns the invitation to enrol with. It is called whenever the
	// agent has no valid certificate, so that a new invitation is found without a
	// restart. If nil, the agent needs credentials.
	Invitation func(ctx context.Context) (Invitation, error)
	// Targets are what the Server may reach. The zero value is only
	// kubernetes.default.svc:443.
	Targets Targets
	// MaxStreams is how many streams a session may carry at once, and how many
	// targets it may dial or relay to for them, whatever the server does. Zero
	// means 1,000.
	MaxStreams int
	// HandshakeTimeout bounds a connection attempt. Zero means 15 seconds.
	HandshakeTimeout time.Duration
	// Grace is how long open streams may go on after Run's context has ended. Zero
	// means 30 seconds; a negative Grace ends them at once.
	Grace time.Duration
	// FirstBackoff bounds the random wait before the next attempt. Each failure, of a name
	// with several addresses at all of them, doubles it, up to MaxBackoff; a session that
	// carried a connection, or lasted as long as FirstBackoff, resets it. Zero means 4 and
	// 30 seconds. If the search for a second replica finds the first one again, that is not
	// a failure: its waits begin shorter, and grow up to ten times MaxBackoff.
	FirstBackoff, MaxBackoff time.Duration
	// KeepAlive detects dead carriers.
	KeepAlive KeepAlive
	// Budget bounds what waits in memory. If nil, it is shared by all of the process that have
	// none, and is 256 MiB.
	Budget *Budget
	// Payload takes a payload from the server's owner; the server gets its error.
	// If nil, payloads are refused.
	Payload func(ctx context.Context, p Payload) error
	// Program is the name and version that the server may see.
	Program string
	// Hooks are called when something happens.
	Hooks AgentHooks

	policy atomic.Pointer[target.Policy] // of the targets; nil before Run and SetTargets

	mu         sync.Mutex // guards the fields below
	state      agentState
	targetsSet bool // by SetTargets: the field Targets counts no more
}

// AgentHooks are called as an Agent works. Each may be nil. Each is called on the
// goroutine that does the work, so it must return soon. The argument server is an
// address without the password and the query of a URL.
type AgentHooks struct {
	// Connected is called when a session begins.
	Connected func(server string, id Identity)
	// Disconnected is called when a session has ended; err is nil if one side
	// closed it as planned.
	Disconnected func(server string, err error)
	// Failed is called when an attempt to connect, to enrol or to renew has
	// failed, with the time until the next one.
	Failed func(server string, err error, retry time.Duration)
	// Enrolled is called when the agent has enrolled: for the first time, or after
	// it had no valid certificate. Renewed is called when it has renewed its
	// certificate.
	Enrolled func(id Identity, until time.Time)
	Renewed  func(id Identity, until time.Time)
	// Dialed is called when a target was dialed, or denied; err is nil or an
	// *[Error].
	Dialed func(took time.Duration, err error)
}

func (a *Agent) grace() time.Duration { return max(cmp.Or(a.Grace, 30*time.Second), 0) }

func (a *Agent) check() error {
	if a.Credentials == nil {
		return configError("field Credentials of the Agent is required: FileStore keeps them in a folder")
	}
	if err := wire.CheckAgentReplica(a.Replica); err != nil {
		return configError("field Replica of the Agent: %w", err)
	}
	for _, s := range a.Servers {
		if err := CheckAddress(s); err != nil {
			return configError("field Servers of the Agent: %q: %w", mask.Address(s), err)
		}
	}
	return nil
}

// Run keeps the agent connected until the context ends. Then it tells the server,
// accepts no more streams, waits up to Grace for the open ones to end, and returns
// nil. Before that it returns only if the configuration can't work. Any other
// failure is retried and reported to the hooks. All its goroutines have ended when
// it returns. It must not be called twice at the same time.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.check(); err != nil {
		return err
	}
	policy, err := a.Targets.compile()
	if err != nil {
		return err
	}
	a.mu.Lock()
	if !a.targetsSet { // SetTargets may have been quicker
		a.policy.Store(policy)
	}
	a.mu.Unlock()
	r := &runner{
		Agent: a, backoff: &backoff.Backoff{First: a.FirstBackoff, Max: a.MaxBackoff},
		changed: make(chan struct{}, 1), updating: make(chan struct{}, 1),
	}
	if a.Replica != "" {
		r.renewDelay = mathrand.Float64()
	}
	r.ctx = context.WithoutCancel(ctx) // sessions outlive ctx by Grace
	r.sessions = group.New(r.ctx)
	r.run(ctx)
	r.drainSessions()
	return nil
}

// SetTargets replaces the field Targets, of an agent that runs or is about to: for dials
// that come later. Open connections live on. The *[Error] of wrong targets has CodeConfig,
// and changes nothing. SetTargets is safe for concurrent use.
func (a *Agent) SetTargets(t Targets) error {
	policy, err := t.compile()
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.policy.Store(policy)
	a.targetsSet = true
	return nil
}

// runner is the state of one Run. Only Run's goroutine uses the fields without a
// lock.
type runner struct {
	*Agent
	backoff       *backoff.Backoff // after a failure, or a session's end
	searchBackoff backoff.Backoff  // after a server that the agent has already
	searchTries   int              // how many such servers the search has found
	attempted     time.Time        // when as many attempts would have ended, one in each FirstBackoff
	ctx           context.Context  // of the sessions, which has no end

	tls            *tls.Config  // of the latest session
	tlsCredentials *Credentials // that it shows

	sessions    *group.Group     // all; its Context ends when Grace has passed
	live        []*serverSession // the ones that accept streams, oldest first
	nextTry     time.Time        // when to try a server; zero: no session is wanted
	serverIndex int              // index of the server to try
	addrs       rotate.Addrs     // of the servers, or of the proxy in front of them

	renewed        time.Time // the last time; zero: never
	renewDelay     float64   // in parts of the longest delay; zero without a Replica
	renewing       *renewal  // nil: none
	renewNotBefore time.Time // to be renewed again, since it failed
	enrolling

	changed     chan struct{} // holds one: a session has news, or ended
	updating    chan struct{} // holds one while the credentials are replaced
	credentials atomic.Pointer[Credentials]
}

// drainSessions drains the sessions that are left.
func (r *runner) drainSessions() {
	for _, l := range r.live {
		l.Retire()
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.grace())
	defer cancel()
	r.sessions.Drain(ctx)
}

// attemptServer makes a session with the next server, which is to be none of those
// held, after an enrolment if there is no valid certificate. The server that it
// returns is for people to read.
func (r *runner) attemptServer(ctx context.Context, held []string) (l *serverSession, server string, err error) {
	servers, enrol, err := r.prepareAttempt(ctx)
	if err != nil {
		return nil, "", err
	}
	address := servers[r.serverIndex%len(servers)]
	server = mask.Address(address)
	r.serverIndex++
	limit := cmp.Or(r.HandshakeTimeout, 15*time.Second)
	ctx, cancel := context.WithTimeoutCause(rotate.WithAddrs(ctx, &r.addrs), limit, fmt.Errorf("the HandshakeTimeout of %v is over", limit))
	defer cancel()
	if enrol {
		if err = r.enroll(ctx, address); err != nil {
			return nil, server, err
		}
		_, addr := rotate.Reached(ctx)
		r.addrs.Prefer(addr, true)
	}
	l, err = r.openSession(ctx, address, held)
	if err != nil {
		r.noteRefusal(err)
	}
	return l, server, err
}

// tlsConfig returns the configuration of a session with a server of the name.
// As a rule it is that of the sessions there are: each is a kilobyte.
func (r *runner) tlsConfig(c *Credentials, name string) *tls.Config {
	if r.tlsCredentials != c || r.tls.ServerName != name {
		r.tls, r.tlsCredentials = c.sessionTLS(), c
		r.tls.ServerName = name
	}
	return r.tls
}

// dialCarrier dials the server and makes the carrier.
func (r *runner) dialCarrier(ctx context.Context, server string, config *tls.Config) (*carrier.Conn, error) {
	c, err := dialCarrier(ctx, r.Dial, server, r.WebSocketTLS, config)
	if err != nil {
		return nil, connectError(ctx, server, err)
	}
	return c, nil
}

// Resolver finds the addresses of a name. A [*net.Resolver] is one. It must return when its context ends, and be safe for concurrent use.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

var _ Resolver = (*net.Resolver)(nil)

// Targets say what an agent dials, and how. The zero value allows
// kubernetes.default.svc:443 and nothing else.
//
// The name of a target is resolved first. Then the addresses are checked, and exactly
// those that passed are dialed: it does not help to change what a name resolves to
// after the check. An address is dialed if
//
//   - a network pattern matches it, or
//   - a name pattern matches the name in the request, and the address is not
//     special: loopback, unspecified, link-local, multicast, broadcast, reserved,
//     the metadata service of a cloud, or one of those in an IPv6 form that embeds
//     an IPv4 address (NAT64, 6to4 and others).
//
// A network pattern allows special addresses only if it is not wider than their
// range: 127.0.0.0/8 and 127.0.0.1 allow loopback, 0.0.0.0/0 does not. 169.254.0.0/16
// allows link-local addresses, but the metadata service among them needs a pattern of
// its own.
//
// An [Agent] reads Targets once, and does not change them; see [Agent.SetTargets].
type Targets struct {
	// Allow are patterns of host:port. If empty, "kubernetes.default.svc:443".
	//
	//	kubernetes.default.svc:443  the name; case and a final dot don't count
	//	*.svc:443                   all names below svc, not svc itself
	//	*:443                       all names, but not addresses in the request
	//	10.0.0.1:443                the address
	//	10.0.0.0/8:10250            the addresses of the network
	//	[2001:db8::1]:443           the address
	//	[2001:db8::/32]:443         the addresses of the network
	//	10.0.0.1:1-1024             the address, on these ports
	//	10.0.0.1:*                  the address, on all ports
	//
	// An internationalised name is the same as its ASCII form. A name is compared
	// as it is in the request, and not as the pod's search list completes it. A
	// name that no pattern matches is looked up only if a network pattern has the
	// port.
	Allow []string
	// Aliases map a target to the host:port that is dialed in its place, such as
	// "kubernetes.default.svc:443" to "10.96.0.1:443". They need no pattern in Allow.
	// An address, or localhost, is dialed as it is, even if it is special: an agent
	// may run outside of a pod. Another name is resolved, and its special addresses
	// are not dialed. An alias of an alias is not followed. May be nil.
	Aliases map[string]string
	// Resolver looks names up. If nil, net.DefaultResolver.
	Resolver Resolver
	// Dial connects to an address, never to a name. It must return when its context
	// ends. If nil, a net.Dialer.
	Dial DialFunc
	// Timeout limits the dial of one target: resolution and all addresses together.
	// If zero, 10 seconds.
	Timeout time.Duration
}

// compile checks t. The *Error has CodeConfig, and names the field and the entry.
func (t *Targets) compile() (*target.Policy, error) {
	policy, err := target.Config{
		Allow: t.Allow, Aliases: t.Aliases, Resolver: t.Resolver, Dial: t.Dial, Timeout: t.Timeout,
	}.Compile()
	if err != nil {
		return nil, configError("%w", err)
	}
	return policy, nil
}

// dialTarget dials what a server asks for.
func dialTarget(ctx context.Context, policy *target.Policy, network, address string) (net.Conn, error) {
	conn, err := policy.Dial(ctx, network, address)
	if err != nil {
		return nil, &Error{Op: "dial", Addr: printable.Text(address, printable.Most), Code: Code(err.Reason), Err: err.Err}
	}
	return conn, nil
}
