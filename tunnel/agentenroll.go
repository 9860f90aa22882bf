package tunnel

import (
	"context"
	"crypto"
	"errors"
	"time"
)

// enrolling is what a runner knows of its enrolments.
type enrolling struct {
	invitation Invitation
	spent      string        // the token that made the credentials, or can't
	key        crypto.Signer // of the enrolment that is under way
	rejected   bool          // the server does not take the credentials
}

// prepare loads the credentials, reads the invitation if there are none that
// will do, and returns the servers to try.
func (r *runner) prepare(ctx context.Context) ([]string, error) {
	if r.held() == nil {
		c, err := r.Credentials.Load(ctx)
		if err != nil {
			return nil, &Error{Op: "connect", Code: CodeNoIdentity, Err: err}
		}
		r.mu.Lock()
		r.credentials = c
		r.mu.Unlock()
	}
	servers := r.Servers
	if r.needsEnrolment() || len(servers) == 0 {
		inv, err := r.invited(ctx)
		switch {
		case err == nil:
			r.invitation = inv
		case r.rejected && !time.Now().After(r.held().expires()):
			// What refused it may be mended on the server's side too.
			r.rejected = false
		default:
			return nil, err
		}
		if len(servers) == 0 {
			servers = inv.Servers
		}
	}
	if len(servers) == 0 {
		return nil, configError("field Servers of the Agent is empty, and the invitation names none")
	}
	return servers, nil
}

// invited returns the invitation; for an enrolment, one that was not used.
func (r *runner) invited(ctx context.Context) (Invitation, error) {
	if r.Invitation == nil {
		return Invitation{}, &Error{Op: "enroll", Code: CodeNoIdentity, Err: errors.New("the Agent has no field Invitation")}
	}
	inv, err := r.Invitation(ctx)
	if err != nil {
		return Invitation{}, &Error{Op: "enroll", Code: CodeNoIdentity, Err: err}
	}
	if r.needsEnrolment() && inv.Token == r.spent {
		return inv, &Error{Op: "enroll", Cluster: inv.Cluster, Code: CodeNoIdentity,
			Err: errors.New("the invitation's token was used; put a new invitation in its place")}
	}
	return inv, nil
}

func (r *runner) needsEnrolment() bool {
	c := r.held()
	return !c.enrolled() || r.rejected || time.Now().After(c.expires())
}

// enroll gets a certificate from the server.
func (r *runner) enroll(ctx context.Context, server string) error {
	inv := r.invitation
	if err := r.makeKey(ctx); err != nil {
		return err
	}
	c, err := r.carry(ctx, server, enrollTLS(inv.Pin))
	if err != nil {
		return err
	}
	defer c.Close()
	made, err := enroll(ctx, c, c.state(), inv, r.key, r.Program)
	if err != nil {
		switch codeOf(err) {
		case CodeTokenUnknown, CodeTokenExpired, CodeTokenUsed, CodeWrongCluster:
			r.spent = inv.Token
		}
		return err
	}
	if _, err := r.update(ctx, func(*Credentials) (*Credentials, error) { return made, nil }); err != nil {
		return err
	}
	r.spent, r.key, r.rejected = inv.Token, nil, false
	if r.Hooks.Enrolled != nil {
		r.Hooks.Enrolled(made.identity(), made.expires())
	}
	return nil
}

// makeKey makes the key to enrol with. Before a first enrolment it is saved,
// since the token may be spent although the answer never comes; what replaces
// rejected credentials must not destroy them.
func (r *runner) makeKey(ctx context.Context) error {
	if r.key != nil {
		return nil
	}
	held := r.held()
	if held != nil && len(held.Chain) == 0 {
		r.key = held.Key
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	if held == nil {
		_, err = r.update(ctx, func(*Credentials) (*Credentials, error) { return &Credentials{Key: key}, nil })
	}
	if err == nil {
		r.key = key
	}
	return err
}

// judge looks at why the server refused a session.
func (r *runner) judge(err error) {
	switch codeOf(err) {
	case CodeCertificateExpired, CodeBadCertificate, CodeRevoked:
		r.rejected = true
	}
}
