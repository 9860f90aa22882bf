package tunnel_test

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/causewayproject/causeway/tunnel"
)

// slowStore stops who asks whether an agent, or all of a cluster, was revoked, after it
// has the answer, while slow is set.
type slowStore struct {
	tunnel.MemoryStore
	slow         atomic.Bool
	cluster      bool // stop who asks about all agents of the cluster
	enter, leave chan struct{}
}

func (s *slowStore) Get(ctx context.Context, kind tunnel.Kind, name string) (tunnel.Record, error) {
	r, err := s.MemoryStore.Get(ctx, kind, name)
	ofCluster := name == tunnel.RevocationName(tunnel.Identity{Cluster: testCluster})
	if kind == tunnel.KindRevoked && ofCluster == s.cluster && s.slow.CompareAndSwap(true, false) {
		s.enter <- struct{}{}
		<-s.leave
	}
	return r, err
}

// refusals is a hook that keeps the errors.
func refusals(errs chan<- error) func(net.Addr, error) {
	return func(_ net.Addr, err error) { errs <- err }
}
