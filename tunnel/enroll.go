package tunnel

import (
	"cmp"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/internal/turns"
	"github.com/causewayproject/causeway/tunnel/internal/carrier"
	"github.com/causewayproject/causeway/tunnel/internal/session"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

const (
	maxEnroll      = 32 << 10           // of the body of an ENROLL or RENEW
	defaultLife    = 7 * 24 * time.Hour // an agent that was off for a weekend comes back by itself
	defaultInvite  = time.Hour
	agentNameBytes = 10 // 16 characters: too many for anybody to find a key with a given name
)

// registrar is the server's side of enrolment, identity and renewal. It is safe
// for concurrent use.
type registrar struct {
	authority func() *Authority // another one after SetAuthority
	records   *Records
	life      time.Duration    // of an agent's certificate; if zero, 7 days
	now       func() time.Time // nil: time.Now
	enroller  Enroller         // the Server's field; it may be nil

	own    atomic.Pointer[serverCertificate]
	claims claims // of tokens
	calls  calls  // of enroller
}

func (r *registrar) clock() time.Time {
	if r.now == nil {
		return time.Now()
	}
	return r.now()
}

func (r *registrar) agentLife() time.Duration { return cmp.Or(max(r.life, 0), defaultLife) }

// refusedError is an error whose text the other side gets.
func refusedError(op, cluster string, code Code, format string, args ...any) *Error {
	e := &Error{Op: op, Cluster: cluster, Code: code}
	if format != "" {
		e.Err = fmt.Errorf(format, args...)
	}
	return e
}

// internalError is an error whose cause the other side does not get.
func internalError(op, cluster string, err error) *Error {
	return &Error{Op: op, Cluster: cluster, Code: CodeInternal, Err: err}
}

// privateCause is the cause of an [*Error] of which the other side only gets the
// code, and told.
type privateCause struct {
	error
	told string
}

func (c privateCause) Unwrap() error { return c.error }

// refusalOf is the message that tells the other side.
func refusalOf(kind wire.Kind, err error) *wire.Message {
	e, ok := errors.AsType[*Error](err)
	if !ok || codeFromWire(uint64(e.Code)) == CodeInternal {
		return refusalMessage(kind, CodeInternal, CodeInternal.String())
	}
	text := e.Code.String()
	if private, ok := errors.AsType[privateCause](e.Err); ok {
		text = cmp.Or(private.told, text)
	} else if e.Err != nil {
		text = printable.Text(e.Err.Error(), printable.Most)
	}
	return refusalMessage(kind, e.Code, text)
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// enrollAgent returns the answer to an ENROLL that came from there, and the identity that
// was enrolled. The error is why it is refused, an [*Error].
func (r *registrar) enrollAgent(ctx context.Context, from netip.Prefix, state *tls.ConnectionState, m *wire.Message) (*wire.Message, Identity, error) {
	if m.Kind != wire.MsgEnroll || len(m.Body) > maxEnroll || state.NegotiatedProtocol != protoEnroll {
		return nil, Identity{}, refusedError("enroll", "", CodeBadRequest, "not an enrolment")
	}
	if !m.Speaks() {
		return nil, Identity{}, refusedError("enroll", "", CodeVersion, "this server speaks version %d", wire.Version)
	}
	if r.enroller != nil && !wire.IsOwnToken(m.Text(wire.TagToken)) {
		return r.enrollOther(ctx, from, state, m)
	}
	// A client without a token that we signed causes no call of the Store.
	t, err := r.verifyToken(m)
	if err != nil {
		return nil, Identity{}, err
	}
	pub, err := m.ProvenKey(state)
	if err != nil {
		return nil, Identity{}, refusedError("enroll", t.Cluster, CodeBadProof, "%w", err)
	}
	id, after, err := r.spendToken(ctx, t, pub)
	if err != nil {
		return nil, id, err
	}
	answer, err := r.answerIssued("enroll", id, after, pub)
	return answer, id, err
}

// nameAgent returns the identity that a new agent with this key has, and the key's
// fingerprint in hex.
func nameAgent(cluster string, pub crypto.PublicKey) (id Identity, key string, err error) {
	sum, err := fingerprint(pub)
	if err != nil {
		return Identity{}, "", internalError("enroll", cluster, err)
	}
	return Identity{Cluster: cluster, Agent: wire.Base32.EncodeToString(sum[:agentNameBytes])}, hex.EncodeToString(sum[:]), nil
}

// spendToken spends the token for the key, unless it was spent for as many other keys as
// it is for. It returns the identity of the key, and the revocation of the cluster that
// the token was made after.
func (r *registrar) spendToken(ctx context.Context, t wire.Token, pub crypto.PublicKey) (Identity, time.Time, error) {
	id, key, err := nameAgent(t.Cluster, pub)
	if err != nil {
		return id, time.Time{}, err
	}
	entry, err := r.claims.takeTurn(ctx, t.ID)
	if err != nil {
		return id, time.Time{}, internalError("enroll", id.Cluster, err)
	}
	defer entry.endTurn()
	if err := entry.refuse(id.Cluster, key); err != nil {
		return id, time.Time{}, err
	}
	if err := r.checkAgentRevoked(ctx, "enroll", id); err != nil {
		return id, time.Time{}, err
	}
	if !entry.holds(key) {
		claimed, err := r.records.ClaimToken(ctx, t.ID, key)
		missing := errors.Is(err, fs.ErrNotExist)
		if err != nil && !missing {
			return id, time.Time{}, internalError("enroll", id.Cluster, err)
		}
		entry.token, entry.missing, entry.void, entry.until = claimed, missing, false, time.Now().Add(claimMemory)
		if err := entry.refuse(id.Cluster, key); err != nil {
			return id, time.Time{}, err
		}
	}
	revoked, err := r.records.Revoked(ctx, Identity{Cluster: id.Cluster})
	if err != nil {
		return id, time.Time{}, internalError("enroll", id.Cluster, err)
	}
	entry.void = entry.token.After.Before(revoked)
	return id, entry.token.After, entry.refuse(id.Cluster, key)
}

// verifyToken returns the message's token, if it may be spent as far as can be known
// without the Store.
func (r *registrar) verifyToken(m *wire.Message) (wire.Token, error) {
	t, err := wire.ParseToken(m.Text(wire.TagToken))
	if err != nil {
		return wire.Token{}, refusedError("enroll", "", CodeTokenUnknown, "%w", err)
	}
	a := r.authority()
	if err := a.check(); err != nil {
		return wire.Token{}, internalError("enroll", "", err)
	}
	if err := t.Verify(a.allCertificates()); err != nil {
		return wire.Token{}, refusedError("enroll", "", CodeTokenUnknown, "%w", err)
	}
	if !r.clock().Before(t.Expires) {
		return wire.Token{}, refusedError("enroll", t.Cluster, CodeTokenExpired, "it ended at %s", formatTime(t.Expires))
	}
	if want := m.Text(wire.TagCluster); want != "" && want != t.Cluster {
		return wire.Token{}, refusedError("enroll", t.Cluster, CodeWrongCluster, "")
	}
	return t, nil
}

// answerRenew returns the answer to a RENEW of the session of id. The certificate that
// the session began with must still be valid.
func (r *registrar) answerRenew(ctx context.Context, id Identity, state *tls.ConnectionState, m *wire.Message) *wire.Message {
	answer, err := r.renewCertificate(ctx, id, state, m)
	if err != nil {
		answer = refusalOf(wire.MsgIssued, err)
	}
	return answer.AddBytes(wire.TagID, m.Bytes(wire.TagID))
}

func (r *registrar) renewCertificate(ctx context.Context, id Identity, state *tls.ConnectionState, m *wire.Message) (*wire.Message, error) {
	if m.Kind != wire.MsgRenew || len(m.Body) > maxEnroll {
		return nil, refusedError("renew", id.Cluster, CodeBadRequest, "not a renewal")
	}
	found, cert, err := r.identify(ctx, "renew", state)
	if err != nil {
		return nil, err
	}
	if found != id {
		return nil, refusedError("renew", id.Cluster, CodeBadCertificate, "the session is another agent's")
	}
	pub, err := m.ProvenKey(state)
	if err != nil {
		return nil, refusedError("renew", id.Cluster, CodeBadProof, "%w", err)
	}
	return r.answerIssued("renew", id, madeAfter(cert), pub)
}

// answerIssued issues a certificate that is made after this revocation of the cluster; see
// agentSerial.
func (r *registrar) answerIssued(op string, id Identity, after time.Time, pub crypto.PublicKey) (*wire.Message, error) {
	a := r.authority()
	if err := a.check(); err != nil {
		return nil, internalError(op, id.Cluster, err)
	}
	cert, err := a.issueCertificate(pub, agentSerial(after), id.URI(), []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, r.clock(), r.agentLife())
	if err != nil {
		return nil, internalError(op, id.Cluster, err)
	}
	return a.addRoots(wire.New(wire.MsgIssued).AddBytes(wire.TagCertificate, cert.Raw)), nil
}

// serveEnrolment answers one ENROLL.
func (s *Server) serveEnrolment(ctx context.Context, c *carrier.Conn) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	m, err := wire.Read(c, maxEnroll)
	if err != nil {
		s.reportRefused(c.RemoteAddr(), handshakeError(ctx, "enroll", "", err))
		return
	}
	asking, cancel := storeContext(ctx)
	defer cancel()
	answer, id, err := s.registrar.enrollAgent(asking, turns.Source(c.RemoteAddr()), c.State(), m)
	if err != nil {
		answer = refusalOf(wire.MsgIssued, err)
		s.reportRefused(c.RemoteAddr(), err)
	} else {
		callHook1(s.Hooks.Enrolled, id)
	}
	if wire.Write(c, answer) != nil || c.Flush() != nil {
		return
	}
	// If it closed at once, the answer might be lost.
	c.SetReadDeadline(time.Now().Add(session.LingerTimeout))
	io.CopyN(io.Discard, c, 1)
}

// storeContext returns a context for calls of the Store. It ends when two thirds of
// the time are over, so that the other side can still be told.
func storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline() // admit's
	return context.WithTimeout(ctx, time.Until(deadline)*2/3)
}

// claimMemory is how long the Store's answer about a token is remembered. In that time
// a client that repeats a token and a key causes one call of the Store, and a client
// that invents keys causes one call for each agent that the token may still enrol.
const claimMemory = time.Minute

// claims keeps callers that have a token from using up the Store: one at a time
// asks about a token, and the answer is remembered. Only tokens that an authority
// signed come here, so its size is bounded by the invitations that were used in
// the last two minutes. The zero value is ready; it is safe for concurrent use.
type claims struct {
	mu    sync.Mutex        // guards the fields below
	known map[string]*claim // by the token's ID
	swept time.Time
}

// claim is what is known about one token.
type claim struct {
	turn chan struct{} // holds one while a caller has the turn and owns the fields below

	token   Token     // as the Store has it
	missing bool      // the Store does not have it
	void    bool      // it was made before the cluster's agents were revoked
	until   time.Time // the fields above are remembered until then
}

// takeTurn waits for the caller's turn with the token. The caller ends it by
// endTurn.
func (c *claims) takeTurn(ctx context.Context, id string) (*claim, error) {
	entry := c.entry(id)
	select {
	case entry.turn <- struct{}{}:
		return entry, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *claims) entry(id string) *claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.swept) >= claimMemory {
		c.sweepLocked(now)
	}
	entry := c.known[id]
	if entry == nil {
		entry = &claim{turn: make(chan struct{}, 1)}
		c.known[id] = entry
	}
	return entry
}

// sweepLocked forgets the tokens that are no longer remembered and that nobody has
// the turn with. A caller that waits for one may then ask beside a later caller,
// which costs the Store one question more.
func (c *claims) sweepLocked(now time.Time) {
	c.swept = now
	if c.known == nil {
		c.known = map[string]*claim{}
	}
	for id, entry := range c.known {
		select {
		case entry.turn <- struct{}{}:
			if !entry.isRemembered(now) {
				delete(c.known, id)
			}
			entry.endTurn()
		default:
		}
	}
}

func (c *claim) endTurn() { <-c.turn }

// isRemembered reports whether the fields count.
func (c *claim) isRemembered(now time.Time) bool { return now.Before(c.until) }

// holds reports whether it is remembered that the token was spent for the key.
func (c *claim) holds(key string) bool {
	return c.isRemembered(time.Now()) && slices.Contains(c.token.Keys, key)
}

// refuse returns the error if it is remembered that the token can't be spent for the
// key.
func (c *claim) refuse(cluster, key string) error {
	switch {
	case !c.isRemembered(time.Now()):
	case c.missing:
		return refusedError("enroll", cluster, CodeTokenUnknown, "")
	case c.void:
		return refusedError("enroll", cluster, CodeTokenUnknown, "all agents and invitations of the cluster were revoked after it was made")
	case !slices.Contains(c.token.Keys, key) && c.token.agentsLeft() == 0:
		if c.token.Agents <= 1 {
			return refusedError("enroll", cluster, CodeTokenUsed, "it was for one agent")
		}
		return refusedError("enroll", cluster, CodeTokenUsed, "it was for %d agents", c.token.Agents)
	}
	return nil
}

// Enroller lets agents in by tokens that are not of the Server's [Authority], for
// example those of a Kubernetes ServiceAccount, which the module tunnel/oidc verifies.
type Enroller interface {
	// Enroll verifies the token, and returns the cluster that its holder is an agent of.
	//
	// The error refuses the agent. With an error, Enroll returns the cluster only if the
	// token has proven to be of it: logs and Events then name it. What the agent says it
	// is of proves nothing. The Cluster of an [*Error] does not count.
	//
	// If the error is an [*Error], the agent gets its code and the text of its cause. Of
	// any other error the agent gets CodeTokenUnknown and no cause, so that a stranger
	// does not learn which clusters there are; the hook Refused gets all of it. After CodeTokenExpired and CodeTokenUsed the agent
	// waits for another token; after other codes it tries this one again, with waits that
	// grow to MaxBackoff.
	//
	// It is asked about each text that has the form of a JSON Web Token, whoever shows it:
	// one that was made up must cost it little. Four calls of one
	// source and 32 in all are under way at once, and more wait. It is called by several
	// goroutines, and has to return soon after ctx has ended, which is when two thirds
	// of HandshakeTimeout are over: Close waits for it.
	//
	// The Server remembers nothing about the token: the same one may enrol again, with
	// the same key, or with another one, which is another agent. [Server.Revoke] and
	// [Server.RevokeCluster] end the agents that there are. For none to come back,
	// refuse the token here.
	Enroll(ctx context.Context, e Enrollment) (cluster string, err error)
}

// Enrollment is an agent's request to be let in.
type Enrollment struct {
	// Cluster is the cluster that the agent says it is of; empty if it does not say. The
	// Server refuses the agent if Enroll returns another.
	Cluster string
	// Token is what the agent shows: three parts with dots, at most 8 KiB. It is a
	// secret: fmt does not print it.
	Token string
	// Key is the hex fingerprint of the agent's key, as in [Token]. The agent has proven
	// that it holds the key. An Enroller whose tokens are good for one agent remembers it.
	Key string
}

// String returns the enrolment without the token.
func (e Enrollment) String() string { return fmt.Sprintf("tunnel.Enrollment{Cluster: %q}", e.Cluster) }

// Format writes String, whatever the verb.
func (e Enrollment) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, e.String()) }

// MarshalText returns String: JSON and logs hold no token.
func (e Enrollment) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// enrollOther enrols an agent as the Server's Enroller says.
func (r *registrar) enrollOther(ctx context.Context, from netip.Prefix, state *tls.ConnectionState, m *wire.Message) (*wire.Message, Identity, error) {
	asked := Enrollment{Cluster: m.Text(wire.TagCluster), Token: m.Text(wire.TagToken)}
	if err := wire.CheckToken(asked.Token); err != nil {
		return nil, Identity{}, refusedError("enroll", "", CodeTokenUnknown, "%w", err)
	}
	if asked.Cluster != "" && wire.CheckCluster(asked.Cluster) != nil {
		return nil, Identity{}, refusedError("enroll", "", CodeBadRequest, "the cluster's name is malformed")
	}
	pub, err := m.ProvenKey(state)
	if err != nil {
		return nil, Identity{}, refusedError("enroll", "", CodeBadProof, "%w", err)
	}
	id, key, err := nameAgent("", pub)
	if err != nil {
		return nil, id, err
	}
	asked.Key = key
	cluster, err := r.askEnroller(ctx, from, asked)
	if err != nil {
		return nil, Identity{}, err
	}
	id.Cluster = cluster
	if err := r.checkAgentRevoked(ctx, "enroll", id); err != nil {
		return nil, id, err
	}
	after, err := r.records.Revoked(ctx, Identity{Cluster: cluster})
	if err != nil {
		return nil, id, internalError("enroll", cluster, err)
	}
	answer, err := r.answerIssued("enroll", id, after, pub)
	return answer, id, err
}

// askEnroller returns the cluster that the Enroller says.
func (r *registrar) askEnroller(ctx context.Context, from netip.Prefix, asked Enrollment) (string, error) {
	leave, err := r.calls.enter(ctx, from)
	if err != nil {
		return "", &Error{Op: "enroll", Code: CodeTooManyStreams, Err: fmt.Errorf("too many enrolments of this address are under way: %w", err)}
	}
	defer leave()
	cluster, err := r.enroller.Enroll(ctx, asked)
	if err != nil {
		return "", enrollerError(ctx, cluster, err)
	}
	if err := wire.CheckCluster(cluster); err != nil {
		return "", internalError("enroll", "", fmt.Errorf("field Enroller of the Server returned a name that no cluster can have: %w", err))
	}
	if asked.Cluster != "" && asked.Cluster != cluster {
		return "", refusedError("enroll", cluster, CodeWrongCluster, "")
	}
	return cluster, nil
}

// enrollerError returns the error for one of the Enroller's. cluster is what the token has
// proven, which may be no name of one.
func enrollerError(ctx context.Context, cluster string, err error) *Error {
	if wire.CheckCluster(cluster) != nil {
		cluster = ""
	}
	refused := &Error{Op: "enroll", Cluster: cluster}
	var e *Error
	switch {
	case errors.As(err, &e):
		refused.Code, refused.Err = cmp.Or(e.Code, CodeInternal), e.Err
	case ctx.Err() != nil:
		refused.Code, refused.Err = CodeTimeout, privateCause{error: err}
	default:
		refused.Code, refused.Err = CodeTokenUnknown, privateCause{err, "the server does not accept it; the server's log says why"}
	}
	return refused
}

const (
	callsAtOnce    = 32  // of the Enroller
	callsOfSource  = 4   // of these
	callersWaiting = 256 // of one source
)

// calls limits the calls of the Enroller. The zero value is ready; it is safe for
// concurrent use.
type calls struct {
	mu      sync.Mutex // guards the fields below
	all     *turns.Queue[netip.Prefix]
	sources map[netip.Prefix]*sourceCalls
}

// sourceCalls are the calls of one source.
type sourceCalls struct {
	queue *turns.Queue[struct{}]
	users int // that wait or have a turn; the lock of calls guards it
}

// enter waits for a turn, which leave gives back. The error is [turns.ErrFull] or ctx's
// cause.
func (c *calls) enter(ctx context.Context, from netip.Prefix) (leave func(), err error) {
	own := c.join(from)
	if err := own.queue.Enter(ctx, struct{}{}); err != nil {
		c.part(from, own)
		return nil, err
	}
	if err := c.all.Enter(ctx, from); err != nil {
		own.queue.Leave()
		c.part(from, own)
		return nil, err
	}
	return func() {
		c.all.Leave()
		own.queue.Leave()
		c.part(from, own)
	}, nil
}

func (c *calls) join(from netip.Prefix) *sourceCalls {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sources == nil {
		c.all, c.sources = turns.New[netip.Prefix](callsAtOnce, 0), map[netip.Prefix]*sourceCalls{}
	}
	own := c.sources[from]
	if own == nil {
		own = &sourceCalls{queue: turns.New[struct{}](callsOfSource, callersWaiting)}
		c.sources[from] = own
	}
	own.users++
	return own
}

func (c *calls) part(from netip.Prefix, own *sourceCalls) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(c.sources, from)
	}
}
