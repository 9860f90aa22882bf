package turns

import (
	"context"
	"sync"
	"time"
)

// Pace lets somebody do Burst things at once, and then Rate a second. It is safe for concurrent use.
type Pace struct {
	Burst, Rate float64

	mu   sync.Mutex // guards the fields below
	done float64    // and not forgotten, at the time
	at   time.Time
}

// Take counts n more, and returns how long to wait for them: two seconds at most.
func (p *Pace) Take(n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.done = min(max(0, p.done-p.Rate*now.Sub(p.at).Seconds())+float64(n), p.Burst+2*p.Rate)
	p.at = now
	return max(0, time.Duration((p.done-p.Burst)/p.Rate*float64(time.Second)))
}

// IsIdle reports whether nothing counts any more.
func (p *Pace) IsIdle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done <= p.Rate*time.Since(p.at).Seconds()
}

// Starts bounds how much of somebody's begins at once. Make one by [NewStarts]. It is safe for concurrent use.
type Starts struct {
	turns chan struct{} // has an element for each turn that is taken
	most  time.Duration
}

// NewStarts returns a Starts with n turns, each of which lasts until what has begun is done, most at most.
func NewStarts(n int, most time.Duration) *Starts { return &Starts{make(chan struct{}, n), most} }

// Enter waits for a turn. The caller calls done when what has begun is done. The error is ctx's cause.
func (s *Starts) Enter(ctx context.Context) (done func(), err error) {
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	end := time.AfterFunc(s.most, func() { <-s.turns })
	return func() {
		if end.Stop() {
			<-s.turns
		}
	}, nil
}
