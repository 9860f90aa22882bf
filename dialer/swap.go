package dialer

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
)

// Swap is a Dialer that can be replaced while it is in use: by one with other
// credentials or another proxy, without a restart of what dials. A dial uses
// the Dialer that was stored when it began; dials under way and connections
// that exist stay as they are.
//
// The zero Swap holds no Dialer: its dials fail, and are not made directly. It
// is safe for concurrent use, and must not be copied after its first use.
type Swap struct {
	current atomic.Pointer[Dialer]
}

var _ Dialer = (*Swap)(nil)

// Store makes d the Dialer of the dials that begin from now on. After a nil d
// they fail.
func (s *Swap) Store(d Dialer) {
	if isNil(d) {
		s.current.Store(nil)
		return
	}
	s.current.Store(&d)
}

// Load returns the Dialer that was stored last, nil if there is none.
func (s *Swap) Load() Dialer {
	if d := s.current.Load(); d != nil {
		return *d
	}
	return nil
}

// DialContext dials with the Dialer that was stored last. If there is none,
// the failure is an [*Error] of [PhaseConfig].
func (s *Swap) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d := s.Load()
	if d == nil {
		return nil, &Error{Op: "swap", Phase: PhaseConfig, Addr: address, Err: errors.New("no Dialer is stored")}
	}
	return d.DialContext(ctx, network, address)
}
