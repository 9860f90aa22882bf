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
	// abandonBurst is how many dials a client may leave before they are answered: each costs an agent,
	// and others, a dial. abandonRate are forgotten in a second. While there are more, its next ones are
	// made one after the other, abandonRate in a second.
	abandonBurst = 1000
	abandonRate  = 50
	// pendingShare is how many dials may wait for their answer for each that the client may still leave.
	pendingShare = 10
)

// errPaced is [Limited].
var errPaced = pacedError{}

type pacedError struct{}

func (pacedError) Error() string {
	return "the client has left too many dials before they were answered, and this one had no turn"
}

func (pacedError) RetryAfter() time.Duration { return abandonBurst / abandonRate * time.Second }

// abandonedDials counts the dials that clients have left, over all their connections.
type abandonedDials struct {
	mu      sync.Mutex // guards the fields below, and those of the accounts except turn
	clients map[any]*abandonAccount
	sweepAt int
}

// abandonAccount is that of a client.
type abandonAccount struct {
	turn    chan struct{} // has an element while a dial has its turn
	pending int           // dials that wait: for their turn, or for their answer
	left    float64       // dials that were left, at the time
	at      time.Time
}

// forget reduces what the client has left, and returns the rest.
func (a *abandonAccount) forget() float64 {
	now := time.Now()
	a.left, a.at = max(0, a.left-abandonRate*now.Sub(a.at).Seconds()), now
	return a.left
}

// isOver reports whether one more dial has to wait for its turn.
func (a *abandonAccount) isOver() bool {
	return float64(a.pending) >= pendingShare*(abandonBurst-a.forget())
}

func (d *abandonedDials) isOver(client any) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.clients[client]
	return a != nil && a.isOver()
}

// abandonKey is the key of a client: its Identity, or where it comes from if it has no name.
func abandonKey(client Identity, remote net.Addr) any {
	if client.Name != "" {
		return client
	}
	return turns.Source(remote)
}

// enter returns when the client may dial. Unless there is an error, the caller calls leave.
func (d *abandonedDials) enter(ctx context.Context, client any) error {
	d.mu.Lock()
	a := d.clients[client]
	if a == nil {
		a = &abandonAccount{turn: make(chan struct{}, 1)}
		if d.clients == nil {
			d.clients = map[any]*abandonAccount{}
		}
		d.clients[client] = a
	}
	mustWait := a.isOver()
	a.pending++
	d.mu.Unlock()
	if !mustWait {
		return nil
	}
	err := a.waitTurn(ctx)
	if err != nil {
		d.leave(client, false)
	}
	return err
}

func (a *abandonAccount) waitTurn(ctx context.Context) error {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errPaced, context.Cause(ctx))
	}
	timer := time.NewTimer(time.Second / abandonRate)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errPaced, context.Cause(ctx))
	}
}

// leave is called when the client has its answer, or was abandoned.
func (d *abandonedDials) leave(client any, abandoned bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.clients[client]
	a.pending--
	if a.forget(); abandoned {
		a.left++
	}
	if a.isIdle() {
		delete(d.clients, client)
	}
	if len(d.clients) >= d.sweepAt { // twice as many as were left the last time
		maps.DeleteFunc(d.clients, func(_ any, a *abandonAccount) bool { a.forget(); return a.isIdle() })
		d.sweepAt = 2*len(d.clients) + 16
	}
}

// isIdle reports whether the client can be forgotten.
func (a *abandonAccount) isIdle() bool { return a.pending == 0 && a.left == 0 }

// enterDial waits until the client may dial. leaveDial is called later, by finish at the latest.
func (r *clientRequest) enterDial(ctx context.Context) error {
	client := abandonKey(r.request.Client, r.request.Credentials.Remote)
	if err := r.g.abandoned.enter(ctx, client); err != nil {
		return err
	}
	r.dialing = client
	return nil
}

// leaveDial is called when the client was told of its target, or is gone. A second call does nothing.
func (r *clientRequest) leaveDial(abandoned bool) {
	if r.dialing != nil {
		r.g.abandoned.leave(r.dialing, abandoned)
		r.dialing = nil
	}
}
