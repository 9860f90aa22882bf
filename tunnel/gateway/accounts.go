package gateway

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/turns"
)

const (
	// abandonBurst is how many requests a client may leave before they are answered: each costs an agent,
	// and others, a dial. abandonRate are forgotten in a second, and abandonMost are remembered. While
	// there are abandonBurst, its next dials are made one after the other, abandonRate in a second.
	abandonBurst = 1000
	abandonRate  = 50
	abandonMost  = 2 * abandonBurst
	// maxTurns dials of a client are made at once: each has its turn until it is answered, turnTime at most.
	// A thousand would have as many goroutines run here, at the agent and at the target, and others behind them.
	maxTurns = 10
	turnTime = 10 * time.Millisecond
	// pendingShare is how many dials may wait for their answer for each that the client may still leave.
	pendingShare = 10
	// maxPaced is how many more may wait for their turn. The rest is refused.
	maxPaced = abandonRate

	// What brings nothing costs a client, over all its connections: a dial that fails wasteDial, another
	// request that is refused wasteRefusal, and of the frames of HTTP/2 what a connection's allowance has lost.
	// Beyond wasteBurst wasteRate is done in a second, and the rest waits, wasteWait at most: goroutines that
	// always have work keep those waiting that have little.
	wasteDial    = 2
	wasteRefusal = 20
	wasteBurst   = 10_000
	wasteRate    = 2000
	wasteWait    = time.Second
)

// errPaced is [Limited].
var errPaced = pacedError{}

type pacedError struct{}

func (pacedError) Error() string {
	return "the client has left too many dials before they were answered, and this one had no turn"
}

func (pacedError) RetryAfter() time.Duration { return abandonBurst / abandonRate * time.Second }

// clientAccounts counts, over all connections of each client, the requests that it has left and what else
// brought nothing.
type clientAccounts struct {
	mu      sync.Mutex // guards the fields below, and those of the accounts
	clients map[any]*clientAccount
	sweepAt int
}

// clientAccount is that of a client.
type clientAccount struct {
	all     *clientAccounts
	client  any // its key
	dials   *turns.Starts
	slow    *turns.Starts // for dials that are paced
	paced   int           // requests that wait for their turn
	pending int           // all that wait: for their turn, or for their answer
	left    float64       // requests that were left, at the time
	wasted  float64       // what brought nothing, at the time
	at      time.Time
}

// accountKey is the key of a client: its Identity, or where it comes from if it has no name.
func accountKey(client Identity, remote net.Addr) any {
	if client.Name != "" {
		return client
	}
	return turns.Source(remote)
}

// isPaced reports whether one more dial has to wait for its turn.
func (a *clientAccount) isPaced() bool {
	return float64(a.pending) >= pendingShare*max(0, abandonBurst-a.forget())
}

// forget reduces what the client has left, and returns the rest.
func (a *clientAccount) forget() float64 {
	now := time.Now()
	since := now.Sub(a.at).Seconds()
	a.left, a.wasted, a.at = max(0, a.left-abandonRate*since), max(0, a.wasted-wasteRate*since), now
	return a.left
}

// isIdle reports whether the client can be forgotten.
func (a *clientAccount) isIdle() bool { return a.pending == 0 && a.forget() == 0 && a.wasted == 0 }

// pendingDial is a request that has no answer yet. The zero value is none.
type pendingDial struct {
	account *clientAccount // nil once it was left
	paced   bool           // it has to wait for its turn
	isDial  bool           // the client may dial
}

// enter counts a request of the client, unless too many wait for their turn.
func (d *clientAccounts) enter(client any) (pendingDial, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.accountLocked(client)
	paced := a.isPaced()
	if paced {
		if a.paced >= maxPaced {
			return pendingDial{}, errPaced
		}
		a.paced++
	}
	a.pending++
	return pendingDial{a, paced, true}, nil
}

func (d *clientAccounts) accountLocked(client any) *clientAccount {
	a := d.clients[client]
	if a == nil {
		d.sweepLocked() // the new one would be idle
		a = &clientAccount{all: d, client: client, dials: turns.NewStarts(maxTurns, turnTime), slow: turns.NewStarts(1, time.Second/abandonRate)}
		d.clients[client] = a
	}
	return a
}

// waste counts n of what brings nothing, and returns how long the client has to wait for it.
func (d *clientAccounts) waste(client any, n int) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.accountLocked(client)
	a.forget()
	a.wasted = min(a.wasted+float64(n), wasteBurst+2*wasteRate)
	return min(time.Duration((a.wasted-wasteBurst)/wasteRate*float64(time.Second)), wasteWait)
}

// isPaced reports whether a dial of the client has to wait for its turn.
func (d *clientAccounts) isPaced(client any) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.clients[client]
	return a != nil && a.isPaced()
}

// await returns when the client may dial. The caller calls answered when the dial has its answer.
func (p *pendingDial) await(ctx context.Context) (answered func(), err error) {
	dials := p.account.dials
	if p.paced {
		dials = p.account.slow
	}
	if answered, err = dials.Enter(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errPaced, err)
	}
	if p.paced {
		p.account.all.mu.Lock()
		defer p.account.all.mu.Unlock()
		p.endWaitLocked()
		return func() {}, nil
	}
	return answered, nil
}

// endWaitLocked is called when the dial has its turn, or needs none any more.
func (p *pendingDial) endWaitLocked() {
	if p.paced {
		p.paced = false
		p.account.paced--
	}
}

// leave is called when the client was told of its target, or has abandoned the request. A second call
// does nothing.
func (p *pendingDial) leave(abandoned bool) {
	a := p.account
	if a == nil {
		return
	}
	d := a.all
	d.mu.Lock()
	defer d.mu.Unlock()
	p.endWaitLocked()
	p.account = nil
	a.pending--
	if a.forget(); abandoned {
		a.left = min(a.left+1, abandonMost)
	}
	if a.isIdle() {
		delete(d.clients, a.client)
	}
}

// sweepLocked makes room for another client: it forgets who is idle, when there are twice as many as were
// left the last time.
func (d *clientAccounts) sweepLocked() {
	if d.clients == nil {
		d.clients = map[any]*clientAccount{}
	}
	if len(d.clients) >= d.sweepAt {
		maps.DeleteFunc(d.clients, func(_ any, a *clientAccount) bool { return a.isIdle() })
		d.sweepAt = 2*len(d.clients) + 16
	}
}
