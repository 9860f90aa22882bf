package tunnel

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"math/big"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel/internal/wire"
)

// Revoke ends the agent's sessions and streams, and refuses it from now on.
// Replicas that are connected by Peers do the same at once, others once they are
// connected. Servers that only share the Store refuse it too; they end its sessions
// when they learn of it by [Server.FollowStore], at the latest when it connects or renews. An agent
// whose invitation is for several, or that enrols by [Server.Enroller], may come back
// under another name.
func (s *Server) Revoke(ctx context.Context, id Identity) error {
	if id.Agent == "" {
		return configError("field Agent of the Identity is empty: RevokeCluster revokes all agents of a cluster")
	}
	if err := errors.Join(wire.CheckCluster(id.Cluster), wire.CheckAgent(id.Agent)); err != nil {
		return configError("Identity: %w", err)
	}
	return s.revoke(ctx, id, 0)
}

// RevokeCluster revokes all agents of the cluster that have enrolled until now, also
// those that are not known here, and all its invitations. Sessions end as with
// [Server.Revoke]. Later invitations for the same cluster count. Only one that is made by
// a replica that has not learnt of the revocation yet is void; a replica learns of it
// when it next reads the Store.
//
// No clocks are compared: each invitation, and each certificate that comes of it, says
// after which revocation of the cluster it was made, and counts until the next one. Agents
// of [Server.Enroller] can come back, as long as it accepts their tokens.
func (s *Server) RevokeCluster(ctx context.Context, cluster string) error {
	if err := s.revoke(ctx, Identity{Cluster: cluster}, 0); err != nil {
		return err
	}
	s.registrar.removeVoidTokens(ctx, cluster)
	return nil
}

// EndCluster is [Server.RevokeCluster] for a cluster that is gone: nothing of it stays in
// the Store for good. Its tokens are removed at once. The revocation is removed by a later
// call of EndCluster or EndedClusters, once nothing can be valid that it refuses: a day
// after CertificateLife and keep, whichever is longer.
//
// keep is how long anything else lives that was made until now: the tickets of a gateway
// that asks the Store, or a certificate of another server of the Store that has a longer
// CertificateLife. The day is for clocks that differ, and for a server that learns late,
// see tunnel/kubernetes.SecretStore.MaxStale.
func (s *Server) EndCluster(ctx context.Context, cluster string, keep time.Duration) error {
	if err := s.setup(); err != nil {
		return err
	}
	r := s.registrar
	keep = max(keep, r.agentLife()) + keepSlack
	if err := s.revoke(ctx, Identity{Cluster: cluster}, keep); err != nil {
		return err
	}
	tokens, err := r.records.Tokens(ctx, cluster)
	for _, t := range tokens {
		err = errors.Join(err, r.records.removeToken(ctx, t.ID))
	}
	if err == nil {
		_, err = s.EndedClusters(ctx)
	}
	return err
}

// keepSlack is how much longer a revocation is kept than what it refuses.
const keepSlack = 24 * time.Hour

// EndedClusters returns the clusters that [Server.EndCluster] has ended, and whose
// revocations are still in the Store.
func (s *Server) EndedClusters(ctx context.Context) ([]string, error) {
	if err := s.setup(); err != nil {
		return nil, err
	}
	life := s.registrar.agentLife() + keepSlack
	ended, err := s.registrar.records.ended(ctx, s.registrar.clock(), life)
	if err != nil {
		return nil, internalError("revoke", "", err)
	}
	return ended, nil
}

// LastRevoked returns when all agents of the cluster were revoked last, as far as this Server has
// learnt since it began: here, from another replica, or by [Server.FollowStore]. It is zero if
// they were not, and may be zero once no certificate of before can be valid. It asks nobody.
func (s *Server) LastRevoked(cluster string) time.Time {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	return s.registry.revoked[Identity{Cluster: cluster}]
}

// removeVoidTokens removes the cluster's tokens that an earlier revocation has made void.
// Those of the latest one stay until they expire: an agent that shows one learns that it was
// revoked. What can't be removed now is removed next time.
func (r *registrar) removeVoidTokens(ctx context.Context, cluster string) {
	tokens, err := r.records.Tokens(ctx, cluster)
	if err != nil {
		return
	}
	var latest time.Time // of the revocations before this one, as far as a token tells
	for _, t := range tokens {
		if t.After.After(latest) {
			latest = t.After
		}
	}
	for _, t := range tokens {
		if t.Cluster == cluster && t.After.Before(latest) {
			r.records.removeToken(ctx, t.ID)
		}
	}
}

// revoke revokes for good, or for a time if keep is not zero.
func (s *Server) revoke(ctx context.Context, id Identity, keep time.Duration) error {
	if err := s.setup(); err != nil {
		return err
	}
	// A Store keeps milliseconds. What was made until now is before the next one, and what
	// is made once this returns is after it.
	if err := wire.CheckCluster(id.Cluster); err != nil {
		return configError("cluster: %w", err)
	}
	now := s.registrar.clock().UTC()
	next := now.Truncate(time.Millisecond).Add(time.Millisecond)
	var until time.Time
	if keep > 0 {
		until = next.Add(keep)
	}
	at, err := s.registrar.records.revokeUntil(ctx, id, next, until)
	if err != nil {
		return err
	}
	defer time.Sleep(next.Sub(now))
	s.closeRevoked(id, at)
	s.peers.sendToAll(revokedMessage(id, at))
	return nil
}

// FollowStore watches the Store until ctx ends, and ends the sessions of the agents that
// other servers revoke. Without it, such a session lives until its agent connects again or
// renews its certificate. The error is about a field, or nil.
func (s *Server) FollowStore(ctx context.Context) error {
	if err := s.setup(); err != nil {
		return err
	}
	return s.registrar.records.Store.Watch(ctx, KindRevoked, func(r Record) {
		if id, v, err := parseRevocation(r); err == nil {
			s.closeRevoked(id, v.At)
		}
	})
}

// closeRevoked ends the sessions of an agent that was revoked, or those of all agents of a
// cluster if the field Agent is empty.
func (s *Server) closeRevoked(id Identity, at time.Time) {
	for _, sess := range s.registry.revoke(id, at) {
		sess.CloseWithCause(&Error{Op: "connect", Cluster: id.Cluster, Code: CodeRevoked})
	}
}

// checkRevoked returns an error if the agent was revoked, or all agents of its cluster
// were after the revocation that its certificate was made after.
func (r *registrar) checkRevoked(ctx context.Context, op string, id Identity, after time.Time) error {
	if err := r.checkAgentRevoked(ctx, op, id); err != nil {
		return err
	}
	at, err := r.records.Revoked(ctx, Identity{Cluster: id.Cluster})
	switch {
	case err != nil:
		return internalError(op, id.Cluster, err)
	case after.Before(at):
		return refusedError(op, id.Cluster, CodeRevoked, "all agents of the cluster were, at %s", formatTime(at))
	}
	return nil
}

func (r *registrar) checkAgentRevoked(ctx context.Context, op string, id Identity) error {
	at, err := r.records.Revoked(ctx, id)
	switch {
	case err != nil:
		return internalError(op, id.Cluster, err)
	case !at.IsZero():
		return refusedError(op, id.Cluster, CodeRevoked, "")
	}
	return nil
}

// The serial number of an agent's certificate says which revocation of its cluster it was
// made after: 2 bytes that say so, 6 bytes of milliseconds since 1970 (0: there was none),
// and 8 random bytes. The serial numbers of other certificates have 20 random bytes.
const (
	serialMark = 0x4357 // "CW"
	serialSize = 16
	timeBits   = 48
)

// agentSerial returns the serial number of a certificate that is made after this
// revocation of the cluster; zero: there was none.
func agentSerial(after time.Time) *big.Int {
	b := make([]byte, serialSize)
	ms := max(after.UnixMilli(), 0) // the zero time is before 1970
	binary.BigEndian.PutUint64(b, serialMark<<timeBits|uint64(ms)&(1<<timeBits-1))
	rand.Read(b[8:])
	return new(big.Int).SetBytes(b)
}

// madeAfter returns the revocation of the cluster that an agent's certificate was made
// after; zero if there was none, or if the certificate does not say so.
func madeAfter(cert *x509.Certificate) time.Time {
	b := cert.SerialNumber.Bytes()
	if len(b) != serialSize {
		return time.Time{}
	}
	head := binary.BigEndian.Uint64(b)
	ms := head & (1<<timeBits - 1)
	if head>>timeBits != serialMark || ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC()
}

// sendRevoked sends the agents that were revoked since this replica began: the
// other replica may not have been told.
func (s *Server) sendRevoked(control *mux.Stream) error {
	var b []byte
	for id, at := range s.registry.allRevoked() {
		b = append(b, revokedMessage(id, at).Encode()...)
	}
	if len(b) == 0 {
		return nil
	}
	_, err := control.Write(b)
	return err
}

func revokedMessage(id Identity, at time.Time) *wire.Message {
	m := wire.New(wire.MsgRevoked).AddString(wire.TagCluster, id.Cluster)
	if id.Agent == "" {
		return m.AddTime(wire.TagTime, at)
	}
	return m.AddString(wire.TagName, id.Agent)
}

// handleRevoked takes a REVOKED from another replica. It is not passed on: the
// replica whose Revoke was called tells all of them.
func (s *Server) handleRevoked(m *wire.Message) {
	id := Identity{Cluster: m.Text(wire.TagCluster), Agent: m.Text(wire.TagName)}
	at := time.Now()
	if ms := m.Uint(wire.TagTime); id.Agent == "" {
		at = time.UnixMilli(int64(ms & (1<<timeBits - 1)))
	}
	if wire.CheckCluster(id.Cluster) == nil && (id.Agent == "" && at.UnixMilli() > 0 || wire.CheckAgent(id.Agent) == nil) {
		s.closeRevoked(id, at)
	}
}
