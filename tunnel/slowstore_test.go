package tunnel_test

import (
	"context"
	"net"
	"sync/atomic"
	"time"

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

func (s *slowStore) Revoked(ctx context.Context, id tunnel.Identity) (time.Time, error) {
	revoked, err := s.MemoryStore.Revoked(ctx, id)
	if (id.Agent == "") == s.cluster && s.slow.CompareAndSwap(true, false) {
		s.enter <- struct{}{}
		<-s.leave
	}
	return revoked, err
}

// refusals is a hook that keeps the errors.
func refusals(errs chan<- error) func(net.Addr, error) {
	return func(_ net.Addr, err error) { errs <- err }
}
