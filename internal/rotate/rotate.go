// Package rotate goes through the addresses of a name. One that accepts TCP and then is silent,
// or leads to a server that one has already, would be dialed again and again.
package rotate

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"slices"
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
	mu    sync.Mutex // guards the fields below
	first string     // that has worked last, and begins each round of its name; empty: none
	tried map[string]bool
	found []string // the addresses of the name that was dialed last since WithAddrs
	name  string   // what was reached last since WithAddrs, as it was asked for
	addr  string   // its address
}

type contextKey struct{}

// WithAddrs returns the context of an attempt. Its dials go to addresses that were not dialed
// yet, as long as there are some: in each round each address of a name has its turn, in the
// order that net.Dialer has them.
func WithAddrs(ctx context.Context, a *Addrs) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tried == nil {
		a.tried = map[string]bool{}
	}
	a.found, a.name, a.addr = nil, "", ""
	return context.WithValue(ctx, contextKey{}, a)
}

// Reached returns the host:port that a dial under ctx has reached last, and its address.
// Both are empty if no dial has.
func Reached(ctx context.Context) (name, addr string) {
	a, _ := ctx.Value(contextKey{}).(*Addrs)
	if a == nil {
		return "", ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.name, a.addr
}

// Left reports whether the name that was dialed last has addresses whose turn is still to come
// in this round.
func (a *Addrs) Left() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.found, func(addr string) bool { return !a.tried[addr] })
}

// Prefer has each round of its name begin with the address, which has worked, until another one
// works. With anew a round begins now.
func (a *Addrs) Prefer(addr string, anew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first = addr; anew {
		clear(a.tried)
	}
}

var errTried = errors.New("the address was tried before")

// Dial dials by d, as the context says.
func Dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	a, _ := ctx.Value(contextKey{}).(*Addrs)
	if a == nil || d.Control != nil || d.ControlContext != nil {
		return d.DialContext(ctx, network, address)
	}
	_, port, _ := net.SplitHostPort(address)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{DNSDone: func(info httptrace.DNSDoneInfo) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.found = nil
		for _, ip := range info.Addrs {
			a.found = append(a.found, net.JoinHostPort(ip.String(), port))
		}
	}})
	conn, left, again, err := a.dialTurns(ctx, *d, network, address)
	for again && a.beginRound(left) { // with first, which is then tried
		conn, left, again, err = a.dialTurns(ctx, *d, network, address)
	}
	if again {
		next := *d
		next.Control = func(_, addr string, _ syscall.RawConn) error { a.take(addr); return nil }
		conn, err = next.DialContext(ctx, network, address)
	}
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.name, a.addr = address, conn.RemoteAddr().String()
	}
	return conn, err
}

// dialTurns dials the addresses that have their turn. The others are left. again says that it
// failed, and that they, or more time, may help.
func (a *Addrs) dialTurns(ctx context.Context, d net.Dialer, network, address string) (conn net.Conn, left []string, again bool, err error) {
	var mu sync.Mutex // guards others
	var others []string
	d.Control = func(_, addr string, _ syscall.RawConn) error {
		if a.take(addr) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		others = append(others, addr)
		return errTried
	}
	short, cancel := context.WithTimeout(ctx, nextWait)
	defer cancel()
	conn, err = d.DialContext(short, network, address)
	mu.Lock()
	defer mu.Unlock()
	return conn, others, err != nil && ctx.Err() == nil && (len(others) > 0 || short.Err() != nil), err
}

// take reports whether the address has its turn, and remembers it.
func (a *Addrs) take(addr string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tried[addr] || addr != a.first && !a.tried[a.first] && slices.Contains(a.found, a.first) {
		return false
	}
	if len(a.tried) >= maxTried {
		a.tried = map[string]bool{}
	}
	a.tried[addr] = true
	return true
}

// beginRound begins a round for these addresses. The others of the name were dialed a moment ago,
// or cannot be dialed, as IPv6 on a host without it. It reports whether one of several is to be
// the first.
func (a *Addrs) beginRound(addrs []string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, addr := range a.found {
		a.tried[addr] = true
	}
	for _, addr := range addrs {
		delete(a.tried, addr)
	}
	return len(addrs) > 1 && slices.Contains(addrs, a.first)
}
