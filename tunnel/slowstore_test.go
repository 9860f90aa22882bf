package tunnel_test

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/causewayproject/causeway/tunnel"
)

// slowStore stops who asks whether an agent was revoked, after it has the
// answer, while slow is set.
type slowStore struct {
	tunnel.MemoryStore
	slow         atomic.Bool
	enter, leave chan struct{}
}

func (s *slowStore) Revoked(ctx context.Context, id tunnel.Identity) (bool, error) {
	revoked, err := s.MemoryStore.Revoked(ctx, id)
	if s.slow.CompareAndSwap(true, false) {
		s.enter <- struct{}{}
		<-s.leave
	}
	return revoked, err
}

// refusals is a hook that keeps the errors.
func refusals(errs chan<- error) func(net.Addr, error) {
	return func(_ net.Addr, err error) { errs <- err }
}
