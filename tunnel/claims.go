package tunnel

import (
	"context"
	"sync"
	"time"
)

// claimMemory is how long the Store's answer about a token counts: whoever
// comes with the same token again and again costs one question in that time.
const claimMemory = time.Minute

// claims keeps callers that have a token from using up the Store: one at a time
// asks about a token, and the answer is remembered. Only tokens that an authority
// signed come here, so its size is bounded by the invitations that were used in
// the last two minutes. The zero value is ready; it is safe for concurrent use.
type claims struct {
	mu    sync.Mutex        // guards the fields below, and claim.users
	known map[string]*claim // by the token's ID
	swept time.Time
}

// claim is what is known of one token.
type claim struct {
	turn  chan struct{} // has room for one
	users int           // callers that have the turn, or wait for it

	// The caller that has the turn owns these.

	holder string    // the key that the token was spent for; empty if the Store does not have the token
	until  time.Time // holder counts until then
}

// enter waits for the caller's turn with the token, which leave ends.
func (c *claims) enter(ctx context.Context, id string) (*claim, error) {
	entry := c.use(id)
	select {
	case entry.turn <- struct{}{}:
		return entry, nil
	case <-ctx.Done():
		c.release(entry)
		return nil, ctx.Err()
	}
}

func (c *claims) use(id string) *claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.swept) >= claimMemory {
		c.sweepLocked(now)
	}
	entry := c.known[id]
	if entry == nil {
		entry = &claim{turn: make(chan struct{}, 1)}
		c.known[id] = entry
	}
	entry.users++
	return entry
}

// sweepLocked forgets the tokens whose time is over.
func (c *claims) sweepLocked(now time.Time) {
	c.swept = now
	if c.known == nil {
		c.known = map[string]*claim{}
	}
	for id, entry := range c.known {
		if entry.users == 0 && !entry.remembered(now) {
			delete(c.known, id)
		}
	}
}

func (c *claims) leave(entry *claim) {
	<-entry.turn
	c.release(entry)
}

func (c *claims) release(entry *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry.users--
}

// remembered reports whether holder counts.
func (c *claim) remembered(now time.Time) bool { return now.Before(c.until) }

// remember keeps what the Store said.
func (c *claim) remember(holder string) {
	c.holder, c.until = holder, time.Now().Add(claimMemory)
}
