package tunnel

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/internal/ended"
	"github.com/causewayproject/causeway/tunnel/internal/socket"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// enrolling is what a runner knows about its enrolments.
type enrolling struct {
	invitation Invitation
	spent      string        // the invitation's token that made the credentials, or can't
	key        crypto.Signer // of the enrolment that is under way
	rejected   atomic.Bool   // the server does not take the credentials
	revoked    bool          // nor the key that was saved before they were made
}

// prepareAttempt loads the credentials and reads the invitation if they are not
// enough. It returns the servers to try, and whether to enrol there first.
func (r *runner) prepareAttempt(ctx context.Context) (servers []string, enrol bool, err error) {
	if enrol = r.needsEnrolment(); enrol {
		if _, err := r.loadCredentials(ctx); err != nil {
			return nil, false, err
		}
		enrol = r.needsEnrolment()
	}
	held := r.held()
	if enrol || len(r.Servers) == 0 {
		r.invitation, err = r.readInvitation(ctx, enrol)
		switch {
		case err != nil && held.isEnrolled():
			// The server decides: its clock may be the right one, and the reason
			// for the refusal may be gone.
			r.rejected.Store(false)
			enrol = false
		case err != nil:
			return nil, false, err
		}
		if !enrol {
			r.keepServers(ctx, r.invitation)
		}
	}
	servers, err = r.serversOr(r.invitation)
	return servers, enrol, err
}

// needsEnrolment reports whether there is no certificate that the server may take.
func (r *runner) needsEnrolment() bool {
	held := r.held()
	return !held.isEnrolled() || r.rejected.Load() || time.Now().After(held.expires())
}

// keepServers saves the addresses of an invitation that has others than are kept, for
// when it is gone. That they can't be saved is no reason not to connect.
func (r *runner) keepServers(ctx context.Context, inv Invitation) {
	_, _ = r.updateCredentials(ctx, func(held *Credentials) (*Credentials, error) {
		ours := inv.Cluster == "" || inv.Cluster == held.identity().Cluster
		if !held.isEnrolled() || !ours || len(inv.Servers) == 0 || slices.Equal(inv.Servers, held.Servers) {
			return held, nil
		}
		next := *held
		next.Servers = inv.Servers
		return &next, nil
	})
}

// serversOr returns the field Servers, or else those of the invitation, or else those
// that are kept with the certificate.
func (r *runner) serversOr(inv Invitation) ([]string, error) {
	servers := r.Servers
	if len(servers) == 0 {
		servers = inv.Servers
	}
	if held := r.held(); len(servers) == 0 && held != nil {
		servers = held.Servers
	}
	if len(servers) == 0 {
		return nil, configError("field Servers of the Agent is empty, and neither an invitation nor the Credentials name one")
	}
	return servers, nil
}

// readInvitation returns the invitation; for an enrolment, one that was not used.
func (r *runner) readInvitation(ctx context.Context, enrol bool) (Invitation, error) {
	if r.Invitation == nil {
		return Invitation{}, &Error{Op: "enroll", Code: CodeNoIdentity, Err: errors.New("the Agent has no field Invitation")}
	}
	inv, err := r.Invitation(ctx)
	if err != nil {
		return Invitation{}, &Error{Op: "enroll", Code: CodeNoIdentity, Err: err}
	}
	if enrol && inv.Token == r.spent {
		return inv, &Error{Op: "enroll", Cluster: inv.Cluster, Code: CodeNoIdentity,
			Err: errors.New("the invitation's token was used, or refused before; put a new invitation in its place")}
	}
	return inv, nil
}

// enroll gets a certificate from the server.
func (r *runner) enroll(ctx context.Context, server string) error {
	inv := r.invitation
	if err := r.makeKey(ctx); err != nil || !r.needsEnrolment() { // another agent has enrolled meanwhile
		return err
	}
	config := enrollTLS(inv.Pin)
	config.ServerName = hostOf(server)
	c, err := r.dialCarrier(ctx, server, config)
	if err != nil {
		return err
	}
	defer c.Close()
	made, err := requestCertificate(ctx, c, c.State(), inv, r.key, r.Program)
	if err != nil {
		switch codeOf(err) {
		case CodeTokenExpired, CodeTokenUsed:
			r.spent = inv.Token
		case CodeTokenUnknown, CodeWrongCluster:
			r.spendToken(inv.Token)
		case CodeRevoked:
			// The key's name is what was revoked: the next attempt has another.
			r.spendToken(inv.Token)
			r.key, r.revoked = nil, true
		}
		return connectError(ctx, server, err)
	}
	made.Servers = inv.Servers
	before := r.held()
	made, err = r.updateCredentials(ctx, func(held *Credentials) (*Credentials, error) {
		if held.isEnrolled() && held != before { // another agent was faster
			return held, nil
		}
		return made, nil
	})
	if err != nil {
		return err
	}
	r.spendToken(inv.Token)
	r.key = nil
	r.rejected.Store(false)
	callHook2(r.Hooks.Enrolled, made.identity(), made.expires())
	return nil
}

// spendToken notes that the token is of no more use. That of another issuer may be: it can
// enrol again, and what it was refused for may pass. Then the waits between the attempts
// grow, as after other failures.
func (r *runner) spendToken(token string) {
	if wire.IsOwnToken(token) {
		r.spent = token
	}
}

// makeKey makes the key to enrol with. Before the first enrolment the key is saved:
// the token may be spent although the answer never comes. If there are rejected
// credentials, the key is not saved before the enrolment, to keep them.
func (r *runner) makeKey(ctx context.Context) error {
	if r.key != nil {
		return nil
	}
	held := r.held()
	first := !held.isEnrolled()
	if first && held != nil && !r.revoked {
		r.key = held.Key
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	made := &Credentials{Key: key}
	if first {
		made, err = r.updateCredentials(ctx, func(now *Credentials) (*Credentials, error) {
			if now != held { // another agent was faster: the token is for its key
				return now, nil
			}
			return made, nil
		})
	}
	if err == nil {
		r.key, r.revoked = made.Key, false
	}
	return err
}

// noteRefusal notes whether the server refused a session because of the
// certificate.
func (r *runner) noteRefusal(err error) {
	switch codeOf(err) {
	case CodeCertificateExpired, CodeBadCertificate, CodeRevoked, CodeServerCertificate:
		r.rejected.Store(true)
	}
}

// requestCertificate asks the server for a certificate of key, on a connection whose
// handshake is done. program names the agent's program and its version. The caller
// saves the credentials and closes the connection, which cannot be used any more
// once ctx has ended.
func requestCertificate(ctx context.Context, conn net.Conn, state *tls.ConnectionState, inv Invitation, key crypto.Signer, program string) (*Credentials, error) {
	m := wire.New(wire.MsgEnroll).AddUint(wire.TagVersion, wire.Version).AddString(wire.TagToken, inv.Token)
	if inv.Cluster != "" {
		m.AddString(wire.TagCluster, inv.Cluster)
	}
	m.AddString(wire.TagProgram, program)
	if err := m.AddRequest(state, key); err != nil {
		return nil, internalError("enroll", inv.Cluster, err)
	}
	answer, err := exchangeMessages(ctx, conn, m)
	if err != nil {
		e := &Error{Op: "enroll", Cluster: inv.Cluster, Code: CodeLost, Err: err}
		switch end := ctx.Err(); {
		case end != nil:
			e.Code, e.Err = contextCode(end), ended.Error(ctx, err)
		case errors.Is(err, wire.ErrMalformed):
			e.Code = CodeBadRequest
		}
		return nil, e
	}
	if answer.Kind != wire.MsgIssued && answer.Kind != wire.MsgRefusal {
		return nil, &Error{Op: "enroll", Cluster: inv.Cluster, Code: CodeBadRequest, Err: errors.New("the server's answer is something else")}
	}
	c, err := parseIssued(answer, "enroll", inv.Cluster, key, state.PeerCertificates)
	if err != nil {
		return nil, err
	}
	if inv.Cluster != "" && c.identity().Cluster != inv.Cluster {
		return nil, &Error{Op: "enroll", Cluster: inv.Cluster, Code: CodeWrongCluster}
	}
	return c, nil
}

// exchangeMessages writes m and reads the answer, both within ctx.
func exchangeMessages(ctx context.Context, conn net.Conn, m *wire.Message) (*wire.Message, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := cmp.Or(wire.Write(conn, m), socket.Flush(conn)); err != nil {
		return nil, err
	}
	return wire.Read(conn, wire.MaxBody)
}

// newRequest makes a key and the RENEW that asks for its certificate on
// this connection. The caller passes the key to acceptRenewal, with the answer that
// has the message's id.
func newRequest(state *tls.ConnectionState) (crypto.Signer, *wire.Message, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, internalError("renew", "", err)
	}
	m := wire.New(wire.MsgRenew).AddString(wire.TagID, rand.Text())
	if err := m.AddRequest(state, key); err != nil {
		return nil, nil, internalError("renew", "", err)
	}
	return key, m, nil
}

// renewal is one that is under way.
type renewal struct {
	session *serverSession
	done    chan error
}

// startRenewal asks for the next certificate on the session, on another goroutine:
// the answer may take long, and a session may end meanwhile.
func (r *runner) startRenewal(ctx context.Context, l *serverSession) {
	n := &renewal{l, make(chan error, 1)}
	r.renewing = n
	go func() { n.done <- r.renew(ctx, l) }()
}

// endRenewal takes the outcome. Each session is then stale, and the next ones
// are where they are.
func (r *runner) endRenewal(ctx context.Context, err error) {
	l := r.renewing.session
	r.renewing = nil
	if ctx.Err() != nil {
		return // the end of Run is no failure
	}
	if err != nil {
		wait := renewalRetry(r.held())
		r.renewNotBefore = time.Now().Add(wait)
		r.reportFailure(l.server, err, wait)
		return
	}
	r.renewed, r.renewNotBefore = time.Now(), time.Time{}
	r.serverIndex = max(r.serverIndex-len(r.live), 0)
}

// nextRenewal returns the link to renew on, and in what time; nil if there is
// none with the certificate of now, or a renewal is under way.
func (r *runner) nextRenewal() (*serverSession, time.Duration) {
	if r.renewing != nil {
		return nil, 0
	}
	for _, l := range r.live {
		if !r.isStale(l) {
			return l, max(r.renewIn(), time.Until(r.renewNotBefore))
		}
	}
	return nil, 0
}

// renewIn is the time until the next renewal. However wrong the clock is, it is
// not sooner after the last one than it would be on time: the server has work with it.
func (r *runner) renewIn() time.Duration {
	c := r.held()
	last := c.expires().Sub(c.renewAt()) // the third of its life
	// Agents that share it don't all ask at once, and most find that another one has renewed it.
	in := time.Until(c.renewAt()) + time.Duration(r.renewDelay*float64(last)/10)
	if !r.renewed.IsZero() {
		in = max(in, time.Until(r.renewed.Add(last)))
	}
	return in
}

// renewalRetry is a tenth of what is left of the certificate, or 5 seconds if that
// is longer; in the last 10 seconds it is half of what is left.
func renewalRetry(c *Credentials) time.Duration {
	left := time.Until(c.expires())
	return min(max(left/10, min(left/2, 5*time.Second), 500*time.Millisecond), time.Hour)
}

// renew gets the next certificate on the link's control stream.
func (r *runner) renew(ctx context.Context, l *serverSession) error {
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	if found, err := r.loadCredentials(ctx); err != nil || found {
		if found {
			held := r.held()
			callHook2(r.Hooks.Renewed, held.identity(), held.expires())
		}
		return err
	}
	before := r.held()
	key, m, err := newRequest(l.carrier.State())
	if err != nil {
		return &Error{Op: "renew", Code: CodeInternal, Err: err}
	}
	select {
	case <-l.issued: // an answer to an earlier request that came too late
	default:
	}
	l.Send(m)
	for {
		select {
		case answer := <-l.issued:
			if answer.Text(wire.TagID) != m.Text(wire.TagID) {
				continue
			}
			next, err := r.updateCredentials(ctx, func(held *Credentials) (*Credentials, error) {
				if held.Chain[0] != before.Chain[0] { // another agent was faster
					return held, nil
				}
				return held.acceptRenewal(answer, key)
			})
			if err == nil {
				callHook2(r.Hooks.Renewed, next.identity(), next.expires())
			}
			return err
		case <-l.Mux.Done():
			return &Error{Op: "renew", Code: CodeLost, Err: l.Mux.Err()}
		case <-ctx.Done():
			return &Error{Op: "renew", Code: contextCode(ctx.Err()), Err: ctx.Err()}
		}
	}
}

// maxSaves is how often credentials are saved while others save theirs, too.
const maxSaves = 5

// held returns the credentials; nil before the first ones.
func (r *runner) held() *Credentials { return r.credentials.Load() }

func (r *runner) identity() Identity { return r.held().identity() }

// updateCredentials replaces the credentials by those that change returns, after they
// are saved: else they would be lost with the process. If another agent that shares the
// store has saved some meanwhile, change is called again with the better ones of both.
func (r *runner) updateCredentials(ctx context.Context, change func(*Credentials) (*Credentials, error)) (*Credentials, error) {
	endUpdate, err := r.beginUpdate(ctx)
	if err != nil {
		return nil, err
	}
	defer endUpdate()
	for saves := 1; ; saves++ {
		held := r.held()
		next, err := change(held)
		if err != nil || next == held {
			return held, err
		}
		err = r.Credentials.Save(ctx, next)
		switch {
		case err == nil:
			r.credentials.Store(next)
			return next, nil
		case !errors.Is(err, ErrCredentialsChanged) || saves == maxSaves:
			return nil, &Error{Op: "connect", Code: CodeInternal, Err: fmt.Errorf("saving the credentials: %w", err)}
		}
		if _, err := r.loadLocked(ctx); err != nil {
			return nil, err
		}
	}
}

// beginUpdate waits until nobody else uses the field Credentials. The caller calls end.
func (r *runner) beginUpdate(ctx context.Context) (end func(), err error) {
	select {
	case r.updating <- struct{}{}:
		return func() { <-r.updating }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// loadCredentials loads the credentials if there are none yet, or if other agents may
// have saved newer ones. It reports whether it has found another certificate.
func (r *runner) loadCredentials(ctx context.Context) (found bool, err error) {
	endUpdate, err := r.beginUpdate(ctx)
	if err != nil {
		return false, err
	}
	defer endUpdate()
	if r.held() != nil && r.Replica == "" {
		return false, nil
	}
	return r.loadLocked(ctx)
}

// loadLocked is loadCredentials for a caller that has called beginUpdate.
func (r *runner) loadLocked(ctx context.Context) (found bool, err error) {
	saved, err := r.Credentials.Load(ctx)
	if err != nil {
		return false, &Error{Op: "connect", Code: CodeNoIdentity, Err: err}
	}
	held := r.held()
	next, err := held.orSaved(saved, r.rejected.Load())
	if err == nil && !held.isEnrolled() { // on Run's goroutine, whose the Invitation is
		err = r.checkShared(ctx, next)
	}
	if err != nil {
		return false, err
	}
	r.credentials.Store(next)
	found = next.isEnrolled() && (!held.isEnrolled() || next.Chain[0] != held.Chain[0])
	if found {
		r.rejected.Store(false)
		r.wakeRun() // its sessions are outdated
	}
	return found, nil
}

// orSaved returns the credentials that an agent with those of c goes on with, after it
// has loaded what is saved: the saved ones, if their certificate is a later one, or any
// other one if the server has rejected that of c. c may be nil, and is not changed.
func (c *Credentials) orSaved(saved *Credentials, rejected bool) (*Credentials, error) {
	switch {
	case saved == nil:
		return c, nil
	case c == nil || !c.isEnrolled():
		return saved, nil
	case !saved.isEnrolled():
		return c, nil
	case saved.identity().Cluster != c.identity().Cluster:
		return nil, otherCluster(saved, c.identity().Cluster)
	case saved.Chain[0].Equal(c.Chain[0]):
		same := *saved
		same.Chain = c.Chain // its sessions are not outdated
		if slices.EqualFunc(same.Roots, c.Roots, (*x509.Certificate).Equal) && slices.Equal(same.Servers, c.Servers) {
			return c, nil
		}
		return &same, nil
	case rejected || saved.expires().After(c.expires()):
		return saved, nil
	}
	return c, nil
}

// checkShared returns an error if credentials that agents share are not of the cluster
// that the agent is invited to: its manifest may name the store of another agent. Without
// an invitation nothing is known.
func (r *runner) checkShared(ctx context.Context, c *Credentials) error {
	if r.Replica == "" || r.Invitation == nil || !c.isEnrolled() {
		return nil
	}
	inv, err := r.Invitation(ctx)
	if err != nil || inv.Cluster == "" || inv.Cluster == c.identity().Cluster {
		return nil
	}
	return otherCluster(c, inv.Cluster)
}

func otherCluster(saved *Credentials, cluster string) error {
	return &Error{Op: "connect", Cluster: cluster, Code: CodeWrongCluster,
		Err: fmt.Errorf("the saved credentials are of the cluster %s: only agents of one cluster can share them; give this agent another store, or remove them there", saved.identity().Cluster)}
}

// trustRoots replaces the authorities that are trusted by those of a WELCOME or ROOTS.
func (r *runner) trustRoots(ctx context.Context, m *wire.Message) error {
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	_, err := r.updateCredentials(ctx, func(held *Credentials) (*Credentials, error) { return held.withAuthorities(m) })
	return err
}
