// Package rotate goes through the addresses of a name. One that accepts TCP and then is silent,
// or leads to a server that one has already, would be dialed again and again.
package rotate

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// maxTried is how many addresses are remembered. Honest names have fewer.
const maxTried = 64

// nextWait is how long the addresses that have their turn may take to connect. Some may lead
// nowhere, as the IPv6 of many networks.
const nextWait = 3 * time.Second

// Addrs remembers which addresses were dialed, for who dials names again and again. The zero
// value is ready for use, by several goroutines.
type Addrs struct {
	mu    sync.Mutex // guards tried
	tried map[string]bool
}

type contextKey struct{}

// WithAddrs returns a context whose dials go to addresses that were not dialed yet, as long as
// there are some: in each round each address of a name has its turn, in the order that
// net.Dialer has them.
func WithAddrs(ctx context.Context, a *Addrs) context.Context {
	return context.WithValue(ctx, contextKey{}, a)
}

var errTried = errors.New("the address was tried before")

// Dial dials by d, as the context says.
func Dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	a, _ := ctx.Value(contextKey{}).(*Addrs)
	if a == nil || d.Control != nil || d.ControlContext != nil {
		return d.DialContext(ctx, network, address)
	}
	var mu sync.Mutex // guards left
	var left []string // the addresses that were not dialed now
	next := *d
	next.Control = func(_, addr string, _ syscall.RawConn) error {
		if a.take(addr) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		left = append(left, addr)
		return errTried
	}
	short, cancel := context.WithTimeout(ctx, nextWait)
	defer cancel()
	conn, err := next.DialContext(short, network, address)
	mu.Lock()
	defer mu.Unlock()
	switch {
	case err == nil || ctx.Err() != nil:
		return conn, err
	case len(left) == 0 && short.Err() == nil:
		return nil, err
	}
	a.forget(left) // the next round
	next.Control = func(_, addr string, _ syscall.RawConn) error { a.take(addr); return nil }
	return next.DialContext(ctx, network, address)
}

// take reports whether the address was not dialed yet, and remembers it.
func (a *Addrs) take(addr string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tried[addr] {
		return false
	}
	if a.tried == nil || len(a.tried) == maxTried {
		a.tried = map[string]bool{}
	}
	a.tried[addr] = true
	return true
}

func (a *Addrs) forget(addrs []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, addr := range addrs {
		delete(a.tried, addr)
	}
}
