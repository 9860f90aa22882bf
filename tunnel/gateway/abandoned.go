package gateway

import (
	"context"
	"maps"
	"net"
	"sync"
	"time"
)

const (
	// abandonBurst is how many dials a client may leave before they are answered, and abandonRate how
	// many more a second: each costs an agent, and others, a dial. Then its next ones wait.
	abandonBurst = 1000
	abandonRate  = 50
)

// abandonedDials counts the dials that clients have left, over all their connections.
type abandonedDials struct {
	mu      sync.Mutex // guards the fields below
	debts   map[any]debt
	sweepAt int
}

// debt is how many dials a client has left; abandonRate are forgotten in a second.
type debt struct {
	dials float64
	at    time.Time
}

func (d debt) left(now time.Time) float64 {
	return max(0, d.dials-abandonRate*now.Sub(d.at).Seconds())
}

// holderOf returns who a request counts for: the client, or where it comes from.
func (r *clientRequest) holderOf() any {
	if r.request.Client.Name != "" {
		return r.request.Client
	}
	host, _, err := net.SplitHostPort(r.request.Credentials.Remote.String())
	if err != nil {
		return ""
	}
	return host
}

// wait returns when the client may dial, or ctx's error.
func (a *abandonedDials) wait(ctx context.Context, client any) error {
	a.mu.Lock()
	over := a.debts[client].left(time.Now()) - abandonBurst
	a.mu.Unlock()
	if over <= 0 {
		return nil
	}
	timer := time.NewTimer(time.Duration(over / abandonRate * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note counts a dial that the client has left. It owes at most what it waits 10 seconds for.
func (a *abandonedDials) note(client any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if len(a.debts) >= a.sweepAt { // twice as many as were left the last time
		maps.DeleteFunc(a.debts, func(_ any, d debt) bool { return d.left(now) == 0 })
		a.sweepAt = 2*len(a.debts) + 16
	}
	if a.debts == nil {
		a.debts = map[any]debt{}
	}
	a.debts[client] = debt{min(a.debts[client].left(now)+1, abandonBurst+10*abandonRate), now}
}
