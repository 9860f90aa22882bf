package tunnel

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

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
