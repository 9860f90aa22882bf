package tunnel

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

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

// enroller is the server's side of enrolment, identity and renewal. It is safe
// for concurrent use.
type enroller struct {
	authority func() *Authority // another one after SetAuthority
	store     Store
	life      time.Duration    // of an agent's certificate; if zero, 7 days
	now       func() time.Time // nil: time.Now
	// identifyOther is the Server's field Identify; it may be nil.
	identifyOther func(tls.ConnectionState) (Identity, error)

	own    atomic.Pointer[serverCertificate]
	claims claims // of tokens
}

func (e *enroller) clock() time.Time {
	if e.now == nil {
		return time.Now()
	}
	return e.now()
}

func (e *enroller) agentLife() time.Duration {
	if e.life <= 0 {
		return defaultLife
	}
	return e.life
}

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
// code.
type privateCause struct{ error }

func (c privateCause) Unwrap() error { return c.error }

// refusalOf is the message that tells the other side.
func refusalOf(kind wire.Kind, err error) *wire.Message {
	var e *Error
	if !errors.As(err, &e) || codeFromWire(uint64(e.Code)) == CodeInternal {
		return refusalMessage(kind, CodeInternal, CodeInternal.String())
	}
	text := e.Code.String()
	var private privateCause
	if e.Err != nil && !errors.As(e.Err, &private) {
		text = e.Err.Error()
	}
	return refusalMessage(kind, e.Code, text)
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// invite makes a token for an agent of the cluster. If life is zero, the
// token expires in an hour.
func (e *enroller) invite(ctx context.Context, cluster string, life time.Duration) (token string, expires time.Time, err error) {
	if err := wire.CheckCluster(cluster); err != nil {
		return "", time.Time{}, configError("cluster: %w", err)
	}
	if life < 0 {
		return "", time.Time{}, configError("the life of a token is negative")
	}
	if life == 0 {
		life = defaultInvite
	}
	a, now := e.authority(), e.clock().UTC()
	if err := a.check(); err != nil {
		return "", time.Time{}, internalError("enroll", cluster, err)
	}
	expires = now.Add(life).Truncate(time.Millisecond) // as in the token
	id, token, err := wire.SignToken(a.Key, a.Certificate, cluster, expires)
	if err == nil {
		err = e.store.AddToken(ctx, Token{ID: id, Cluster: cluster, Created: now, Expires: expires})
	}
	if err != nil {
		return "", time.Time{}, internalError("enroll", cluster, err)
	}
	return token, expires, nil
}

// answerEnroll returns the answer to an ENROLL, and the identity that was enrolled. If
// the answer is a refusal, the error is its reason, an [*Error].
func (e *enroller) answerEnroll(ctx context.Context, state *tls.ConnectionState, m *wire.Message) (*wire.Message, Identity, error) {
	answer, id, err := e.enrollAgent(ctx, state, m)
	if err != nil {
		return refusalOf(wire.MsgIssued, err), id, err
	}
	return answer, id, nil
}

func (e *enroller) enrollAgent(ctx context.Context, state *tls.ConnectionState, m *wire.Message) (*wire.Message, Identity, error) {
	if m.Kind != wire.MsgEnroll || len(m.Body) > maxEnroll || state.NegotiatedProtocol != protoEnroll {
		return nil, Identity{}, refusedError("enroll", "", CodeBadRequest, "not an enrolment")
	}
	if !m.Speaks() {
		return nil, Identity{}, refusedError("enroll", "", CodeVersion, "this server speaks version %d", wire.Version)
	}
	// A client without a token that we signed causes no call of the Store.
	t, err := e.verifyToken(m)
	if err != nil {
		return nil, Identity{}, err
	}
	pub, err := m.ProvenKey(state)
	if err != nil {
		return nil, Identity{}, refusedError("enroll", t.Cluster, CodeBadProof, "%w", err)
	}
	id, err := e.spendToken(ctx, t, pub)
	if err != nil {
		return nil, id, err
	}
	answer, err := e.answerIssued("enroll", id, pub)
	return answer, id, err
}

// spendToken spends the token for the key, unless it was spent for another key, and
// returns the identity of that key.
func (e *enroller) spendToken(ctx context.Context, t wire.Token, pub crypto.PublicKey) (Identity, error) {
	sum, err := fingerprint(pub)
	if err != nil {
		return Identity{}, internalError("enroll", t.Cluster, err)
	}
	id := Identity{Cluster: t.Cluster, Agent: wire.Base32.EncodeToString(sum[:agentNameBytes])}
	key := hex.EncodeToString(sum[:])
	entry, err := e.claims.takeTurn(ctx, t.ID)
	if err != nil {
		return id, internalError("enroll", id.Cluster, err)
	}
	defer entry.endTurn()
	known := entry.isRemembered(time.Now())
	if !known || entry.holder == key {
		if err := e.checkRevoked(ctx, "enroll", id); err != nil {
			return id, err
		}
	}
	if !known {
		holder, err := e.claimToken(ctx, t.ID, key)
		if err != nil {
			return id, internalError("enroll", id.Cluster, err)
		}
		entry.remember(holder)
	}
	switch entry.holder {
	case key:
		return id, nil
	case "":
		return id, refusedError("enroll", id.Cluster, CodeTokenUnknown, "")
	}
	return id, refusedError("enroll", id.Cluster, CodeTokenUsed, "")
}

// claimToken returns the key that the token is spent for, the given one if it came
// first; "" if the Store does not have the token.
func (e *enroller) claimToken(ctx context.Context, id, key string) (holder string, err error) {
	t, err := e.store.ClaimToken(ctx, id, key)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return t.Key, err
}

// verifyToken returns the message's token, if it may be spent as far as can be known
// without the Store.
func (e *enroller) verifyToken(m *wire.Message) (wire.Token, error) {
	t, err := wire.ParseToken(m.Text(wire.TagToken))
	if err != nil {
		return wire.Token{}, refusedError("enroll", "", CodeTokenUnknown, "%w", err)
	}
	a := e.authority()
	if err := a.check(); err != nil {
		return wire.Token{}, internalError("enroll", "", err)
	}
	if err := t.Verify(a.allCertificates()); err != nil {
		return wire.Token{}, refusedError("enroll", "", CodeTokenUnknown, "%w", err)
	}
	if !e.clock().Before(t.Expires) {
		return wire.Token{}, refusedError("enroll", t.Cluster, CodeTokenExpired, "it ended at %s", formatTime(t.Expires))
	}
	if want := m.Text(wire.TagCluster); want != "" && want != t.Cluster {
		return wire.Token{}, refusedError("enroll", t.Cluster, CodeWrongCluster, "")
	}
	return t, nil
}

// answerRenew returns the answer to a RENEW of the session of id. The certificate that
// the session began with must still be valid.
func (e *enroller) answerRenew(ctx context.Context, id Identity, state *tls.ConnectionState, m *wire.Message) *wire.Message {
	answer, err := e.renewCertificate(ctx, id, state, m)
	if err != nil {
		answer = refusalOf(wire.MsgIssued, err)
	}
	return answer.AddBytes(wire.TagID, m.Bytes(wire.TagID))
}

func (e *enroller) renewCertificate(ctx context.Context, id Identity, state *tls.ConnectionState, m *wire.Message) (*wire.Message, error) {
	if m.Kind != wire.MsgRenew || len(m.Body) > maxEnroll {
		return nil, refusedError("renew", id.Cluster, CodeBadRequest, "not a renewal")
	}
	// Identify is not asked: a certificate of another PKI is renewed by that PKI.
	found, _, err := e.issuedTo("renew", state)
	if err == nil {
		_, err = e.inForce(ctx, "renew", found, state)
	}
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
	return e.answerIssued("renew", id, pub)
}

func (e *enroller) answerIssued(op string, id Identity, pub crypto.PublicKey) (*wire.Message, error) {
	a := e.authority()
	if err := a.check(); err != nil {
		return nil, internalError(op, id.Cluster, err)
	}
	cert, err := a.issueCertificate(pub, id.URI(), []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, e.clock(), e.agentLife())
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
		s.Hooks.reportRefused(c.RemoteAddr(), handshakeError(ctx, "enroll", "", err))
		return
	}
	asking, cancel := storeContext(ctx)
	defer cancel()
	answer, id, err := s.enroller.answerEnroll(asking, c.State(), m)
	if err != nil {
		s.Hooks.reportRefused(c.RemoteAddr(), err)
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

// claimMemory is how long the Store's answer about a token is remembered: a client
// that repeats a token causes one call of the Store in that time.
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

	holder string    // the key that the token was spent for; empty if the Store does not have the token
	until  time.Time // holder is remembered until then
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

// isRemembered reports whether holder counts.
func (c *claim) isRemembered(now time.Time) bool { return now.Before(c.until) }

// remember keeps what the Store said.
func (c *claim) remember(holder string) {
	c.holder, c.until = holder, time.Now().Add(claimMemory)
}
