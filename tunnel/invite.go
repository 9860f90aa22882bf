package tunnel

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// maxInvited is how many agents one invitation may be for.
const maxInvited = 1000

// Invite returns what one agent needs to enrol for the cluster, here or at any
// replica that has the same Store and trusts the Authority. The token can be used by
// one agent, until life (zero: 1 hour) has passed. The caller fills in Servers.
func (s *Server) Invite(ctx context.Context, cluster string, life time.Duration) (Invitation, error) {
	return s.InviteAgents(ctx, cluster, 1, life)
}

// InviteAgents is [Server.Invite] for several agents, from 1 to 1,000. Each has a key of
// its own and gets an identity of its own. Agents that share their credentials, such as
// the pods of one Deployment, count as one.
func (s *Server) InviteAgents(ctx context.Context, cluster string, agents int, life time.Duration) (Invitation, error) {
	if err := s.setup(); err != nil {
		return Invitation{}, err
	}
	return s.registrar.invite(ctx, cluster, agents, life)
}

// Invitations returns the cluster's invitations that can still be used, the oldest
// first: those that have not ended, that are for more agents than have enrolled by them,
// and that were made after the last [Server.RevokeCluster]. Their Agents is how many
// agents are left. The Store keeps no secret: the tokens are signed again, and so differ
// from those that were given out before. Both count as one. The caller fills in Servers.
func (s *Server) Invitations(ctx context.Context, cluster string) ([]Invitation, error) {
	if err := s.setup(); err != nil {
		return nil, err
	}
	return s.registrar.openInvitations(ctx, cluster)
}

// Withdraw ends an invitation before its time, by its token: no other agent can enrol
// with it. The agents that have enrolled stay; the token of one that did so in the last
// minute may still be accepted again, from that agent. There is no error if the Store
// does not have the token (any more).
func (s *Server) Withdraw(ctx context.Context, token string) error {
	if err := s.setup(); err != nil {
		return err
	}
	t, err := wire.ParseToken(token)
	if err != nil {
		return configError("token: %w", err)
	}
	if err := s.registrar.store.RemoveToken(ctx, t.ID); err != nil {
		return internalError("enroll", t.Cluster, err)
	}
	return nil
}

// invite makes a token for agents of the cluster. If life is zero, the token expires
// in an hour.
func (r *registrar) invite(ctx context.Context, cluster string, agents int, life time.Duration) (Invitation, error) {
	switch err := wire.CheckCluster(cluster); {
	case err != nil:
		return Invitation{}, configError("cluster: %w", err)
	case agents < 1 || agents > maxInvited:
		return Invitation{}, configError("an invitation is for 1 to %d agents, not %d", maxInvited, agents)
	case life < 0:
		return Invitation{}, configError("the life of a token is negative")
	case life == 0:
		life = defaultInvite
	}
	after, err := r.store.Revoked(ctx, Identity{Cluster: cluster})
	if err != nil {
		return Invitation{}, internalError("enroll", cluster, err)
	}
	now := r.clock().UTC()
	t := Token{
		ID: wire.NewTokenID(), Cluster: cluster, Agents: agents, After: after,
		Created: now, Expires: now.Add(life).Truncate(time.Millisecond), // as in the text
	}
	inv, err := r.signInvitation(t)
	if err != nil {
		return Invitation{}, err
	}
	if err := r.store.AddToken(ctx, t); err != nil {
		return Invitation{}, internalError("enroll", cluster, err)
	}
	return inv, nil
}

// signInvitation returns the invitation that has the token.
func (r *registrar) signInvitation(t Token) (Invitation, error) {
	a := r.authority()
	err := a.check()
	var text string
	if err == nil {
		text, err = wire.SignToken(a.Key, a.Certificate, t.ID, t.Cluster, t.Expires)
	}
	if err != nil {
		return Invitation{}, internalError("enroll", t.Cluster, err)
	}
	return Invitation{Cluster: t.Cluster, Token: text, Pin: a.Pin(), Expires: t.Expires, Agents: t.agentsLeft()}, nil
}

func (r *registrar) openInvitations(ctx context.Context, cluster string) (open []Invitation, err error) {
	if err := wire.CheckCluster(cluster); err != nil {
		return nil, configError("cluster: %w", err)
	}
	revoked, err := r.store.Revoked(ctx, Identity{Cluster: cluster})
	if err != nil {
		return nil, internalError("enroll", cluster, err)
	}
	tokens, err := r.store.Tokens(ctx, cluster)
	if err != nil {
		return nil, internalError("enroll", cluster, err)
	}
	now := r.clock()
	tokens = slices.DeleteFunc(tokens, func(t Token) bool {
		return t.Cluster != cluster || !now.Before(t.Expires) || t.agentsLeft() == 0 || t.After.Before(revoked)
	})
	slices.SortFunc(tokens, func(a, b Token) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	for _, t := range tokens {
		inv, err := r.signInvitation(t)
		if err != nil {
			return nil, err
		}
		open = append(open, inv)
	}
	return open, nil
}
