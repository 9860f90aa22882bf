package tunnel

import (
	"context"
	"slices"
	"sync"
	"time"
)

// claimMemory is how long the Store's answer about a token is remembered. In that time
// a client that repeats a token and a key causes one call of the Store, and a client
// that invents keys causes one call for each agent that the token may still enrol.
const claimMemory = time.Minute

// claims keeps callers that have a token from using up the Store: one at a time
// asks about a token, and the answer is remembered. Only tokens that an authority
// signed come here, so its size is bounded by the invitations that were used in
// the last two minutes. The zero value is ready; it is safe for concurrent use.
type claims struct {
	mu    sync.Mutex        // guards the fields below
	known map[string]*claim // by the token's ID
	swept time.Time
}

// claim is what is known about one token.
type claim struct {
	turn chan struct{} // holds one while a caller has the turn and owns the fields below

	token   Token     // as the Store has it
	missing bool      // the Store does not have it
	void    bool      // it was made before the cluster's agents were revoked
	until   time.Time // the fields above are remembered until then
}

// takeTurn waits for the caller's turn with the token. The caller ends it by
// endTurn.
func (c *claims) takeTurn(ctx context.Context, id string) (*claim, error) {
	entry := c.entry(id)
	select {
	case entry.turn <- struct{}{}:
		return entry, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *claims) entry(id string) *claim {
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
	return entry
}

// sweepLocked forgets the tokens that are no longer remembered and that nobody has
// the turn with. A caller that waits for one may then ask beside a later caller,
// which costs the Store one question more.
func (c *claims) sweepLocked(now time.Time) {
	c.swept = now
	if c.known == nil {
		c.known = map[string]*claim{}
	}
	for id, entry := range c.known {
		select {
		case entry.turn <- struct{}{}:
			if !entry.isRemembered(now) {
				delete(c.known, id)
			}
			entry.endTurn()
		default:
		}
	}
}

func (c *claim) endTurn() { <-c.turn }

// isRemembered reports whether the fields count.
func (c *claim) isRemembered(now time.Time) bool { return now.Before(c.until) }

// remember keeps what the Store said.
func (c *claim) remember(t Token, missing bool) {
	c.token, c.missing, c.void, c.until = t, missing, false, time.Now().Add(claimMemory)
}

// holds reports whether it is remembered that the token was spent for the key.
func (c *claim) holds(key string) bool {
	return c.isRemembered(time.Now()) && slices.Contains(c.token.Keys, key)
}

// refuse returns the error if it is remembered that the token can't be spent for the
// key.
func (c *claim) refuse(cluster, key string) error {
	switch {
	case !c.isRemembered(time.Now()):
	case c.missing:
		return refusedError("enroll", cluster, CodeTokenUnknown, "")
	case c.void:
		return refusedError("enroll", cluster, CodeTokenUnknown, "all agents and invitations of the cluster were revoked after it was made")
	case !slices.Contains(c.token.Keys, key) && c.token.agentsLeft() == 0:
		if c.token.Agents <= 1 {
			return refusedError("enroll", cluster, CodeTokenUsed, "it was for one agent")
		}
		return refusedError("enroll", cluster, CodeTokenUsed, "it was for %d agents", c.token.Agents)
	}
	return nil
}
