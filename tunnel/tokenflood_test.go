package tunnel_test

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/test/enroltest"
	"github.com/causewayproject/causeway/tunnel"
)

// throttledStore answers as client-go lets it: 10 questions at once, and then 5
// a second, in their order.
type throttledStore struct {
	countingStore
	mu   sync.Mutex // guards the field below
	last time.Time  // whose turn is given away
}

const (
	throttledEvery = time.Second / 5
	throttledBurst = 10
)

func (s *throttledStore) wait(ctx context.Context) error {
	s.mu.Lock()
	now := time.Now()
	if full := now.Add(-throttledBurst * throttledEvery); s.last.Before(full) {
		s.last = full
	}
	turn := s.last.Add(throttledEvery)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(turn) {
		s.mu.Unlock()
		return errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
	}
	s.last = turn
	s.mu.Unlock()
	select {
	case <-time.After(turn.Sub(now)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *throttledStore) Get(ctx context.Context, kind tunnel.Kind, name string) (tunnel.Record, error) {
	if err := s.wait(ctx); err != nil {
		return tunnel.Record{}, err
	}
	return s.countingStore.Get(ctx, kind, name)
}

// codeCounts counts the refusals of a Server.
type codeCounts struct {
	mu sync.Mutex // guards the field below
	by map[tunnel.Code]int
}

func (c *codeCounts) refused(_ net.Addr, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[tunnel.Code]int{}
	}
	c.by[codeOf(err)]++
}

func (c *codeCounts) of(code tunnel.Code) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[code]
}

// TestTokenFlood: somebody shows tokens, fifty a second, to a server whose Store
// answers five. In the middle of it an agent that was invited enrols and
// connects, and one that was enrolled before connects again, within a second.
func TestTokenFlood(t *testing.T) {
	const shown, middle = 300, 150
	for _, tt := range []struct {
		name   string
		token  func(t *testing.T, f *flood) string
		want   tunnel.Code
		claims int64
	}{
		{"made up", func(t *testing.T, f *flood) string {
			body, _ := tokenParts(t, f.invite().Token)
			return otherToken(t, body)
		}, tunnel.CodeTokenUnknown, 0},
		{"used by another agent", func(t *testing.T, f *flood) string {
			token := f.invite().Token
			if answer := f.enrol(token, newKey(t)); answer.Code != 0 {
				t.Fatalf("got %+v", answer)
			}
			return token
		}, tunnel.CodeTokenUsed, 0},
		{"not in the Store", func(t *testing.T, f *flood) string {
			other := &tunnel.Server{Authority: f.s.Authority}
			inv, err := other.Invite(t.Context(), testCluster, 0)
			if err != nil {
				t.Fatal(err)
			}
			return inv.Token
		}, tunnel.CodeTokenUnknown, 1},
		{"expired", func(t *testing.T, f *flood) string {
			inv, err := f.s.Invite(t.Context(), testCluster, time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // the bubble's
			return inv.Token
		}, tunnel.CodeTokenExpired, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, counts := &throttledStore{}, &codeCounts{}
				f := &flood{bed: newBed(t, &tunnel.Server{Store: store, Hooks: tunnel.Hooks{Refused: counts.refused}})}
				known := &tunnel.MemoryCredentials{}
				f.agent(&tunnel.Agent{Credentials: known}).stop()
				token, key, inv := tt.token(t, f), newKey(t), f.invite()
				time.Sleep(time.Minute / 2) // the bubble's: the Store has rested
				claims := store.claims.Load()
				var shows sync.WaitGroup
				for n := range shown {
					shows.Go(func() {
						if answer := f.enrol(token, key); answer.Code != uint64(tt.want) {
							t.Errorf("got %+v, want %v", answer, tt.want)
						}
					})
					time.Sleep(time.Second / 50)
					if n == middle {
						f.connectsSoon(&tunnel.Agent{Invitation: func(context.Context) (tunnel.Invitation, error) { return inv, nil }})
						f.connectsSoon(&tunnel.Agent{Credentials: known})
					}
				}
				shows.Wait()
				if got := store.claims.Load() - claims; got != tt.claims+1 {
					t.Errorf("the Store was asked about tokens %d times, want %d and once for the agent", got, tt.claims)
				}
				if got := counts.of(tt.want); got != shown {
					t.Errorf("got %d refusals with %v, want %d", got, tt.want, shown)
				}
			})
		})
	}
}

type flood struct{ *bed }

// enrol shows a token by hand.
func (f *flood) enrol(token string, key *ecdsa.PrivateKey) enroltest.Answer {
	f.t.Helper()
	conn, err := f.w.Dial(f.t.Context(), "tcp", wireAddress)
	if err != nil {
		f.t.Error(err)
		return enroltest.Answer{}
	}
	answer, err := enroltest.Enrol(f.t.Context(), conn, token, key)
	if err != nil {
		f.t.Error(err)
	}
	return answer
}

// connectsSoon runs the agent until it is connected.
func (f *flood) connectsSoon(a *tunnel.Agent) {
	f.t.Helper()
	began := time.Now()
	f.agent(a).stop()
	if took := time.Since(began); took > time.Second {
		f.t.Errorf("the agent was connected after %v, want a second at most", took)
	}
}

// TestTokenMemory: of many who show one token at the same time one asks the
// Store. What it said counts for a minute; a failure does not.
func TestTokenMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hangingStore{}
		f := &flood{bed: newBed(t, &tunnel.Server{Store: store})}
		token, key := f.invite().Token, newKey(t)
		var shows sync.WaitGroup
		var mu sync.Mutex
		codes := map[uint64]int{}
		store.hangs.Store(true)
		for range 20 {
			shows.Go(func() {
				answer := f.enrol(token, newKey(t))
				mu.Lock()
				defer mu.Unlock()
				codes[answer.Code]++
			})
		}
		shows.Wait()
		if codes[uint64(tunnel.CodeInternal)] != 20 {
			t.Errorf("while the Store hangs: got %v, want %v for all", codes, tunnel.CodeInternal)
		}
		store.hangs.Store(false)
		if answer := f.enrol(token, key); answer.Code != 0 {
			t.Errorf("afterwards: got %+v", answer)
		}
		for range 2 {
			if answer := f.enrol(token, newKey(t)); answer.Code != uint64(tunnel.CodeTokenUsed) {
				t.Errorf("another key: got %+v", answer)
			}
			if answer := f.enrol(token, key); answer.Code != 0 {
				t.Errorf("the same key: got %+v", answer)
			}
			time.Sleep(2 * time.Minute) // the bubble's
		}
	})
}
