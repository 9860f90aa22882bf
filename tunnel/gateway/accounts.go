package gateway

import (
	"maps"
	"net"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/turns"
)

const (
	// maxTurns dials of a client are made at once: each has its turn until it is answered, turnTime at most.
	// A thousand would have as many goroutines run here, at the agent and at the target, and others behind them.
	maxTurns = 10
	turnTime = 10 * time.Millisecond

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

// clientAccounts counts, over all connections of each client, the dials, and what brought nothing.
type clientAccounts struct {
	mu      sync.Mutex // guards the fields below, and dialing of the accounts
	clients map[any]*clientAccount
	sweepAt int
}

// clientAccount is that of a client.
type clientAccount struct {
	all     *clientAccounts
	client  any // its key
	dials   *turns.Starts
	dialing int // dials that wait, for their turn or for their answer
	wasted  turns.Pace
}

// accountKey is the key of a client: its Identity, or where it comes from if it has no name.
func accountKey(client Identity, remote net.Addr) any {
	if client.Name != "" {
		return client
	}
	return turns.Source(remote)
}

// isIdle reports whether the client can be forgotten.
func (a *clientAccount) isIdle() bool { return a.dialing == 0 && a.wasted.IsIdle() }

// enter counts a dial of the client. The caller calls leave.
func (d *clientAccounts) enter(client any) *clientAccount {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.accountLocked(client)
	a.dialing++
	return a
}

func (a *clientAccount) leave() {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	if a.dialing--; a.isIdle() {
		delete(a.all.clients, a.client)
	}
}

func (d *clientAccounts) accountLocked(client any) *clientAccount {
	a := d.clients[client]
	if a == nil {
		d.sweepLocked() // the new one would be idle
		a = &clientAccount{all: d, client: client, dials: turns.NewStarts(maxTurns, turnTime), wasted: turns.Pace{Burst: wasteBurst, Rate: wasteRate}}
		d.clients[client] = a
	}
	return a
}

// waste counts n of what brings nothing, and returns how long the client has to wait for it.
func (d *clientAccounts) waste(client any, n int) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return min(d.accountLocked(client).wasted.Take(n), wasteWait)
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
