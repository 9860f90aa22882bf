package kubernetes

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/causewayproject/causeway/internal/turns"
)

const (
	// reviewsAtOnce is how many requests of a kind are under way at once. Reviews
	// that wait are served by source; requests that wait in the Client's own queue
	// would be served in their order, strangers' first.
	reviewsAtOnce = 4
	// maxWaiting is how many reviews of one source may wait for their turn.
	maxWaiting = 256
	// maxOfConn is how many reviews of one connection may be under way.
	maxOfConn = 16
	// refusalLife is how long a refusal is remembered.
	refusalLife = 5 * time.Second
	// keepKnown is how long a former yes is known: see reviewQueue.
	keepKnown = 24 * time.Hour
)

var (
	errManyOfConn = errors.New("too many different tokens over one connection wait for their review")
	errUnanswered = errors.New("the review has not ended")
)

// digest is the hash of a token, or of a token and a cluster.
type digest = [sha256.Size]byte

// reviewQueue asks the API server questions of one kind, and remembers the answers.
// Equal questions at the same time are one request. Questions that had a yes
// before wait in a queue of their own, so that strangers cannot delay them. The
// zero value is ready; it is safe for concurrent use.
type reviewQueue[V any] struct {
	once          sync.Once             // makes the four fields below
	yes, no       *cache.LRUExpireCache // of cachedAnswer, by digest
	known, others *turns.Queue[string]

	mu      sync.Mutex // guards the fields below
	pending map[digest]*review[V]
	perConn map[string]int // of pending, by connection
}

// review is a question that is under way.
type review[V any] struct {
	done      chan struct{} // closed when the fields below are set
	abandoned bool          // the first caller got no turn, or left: the others ask again
	value     V
	err       error
}

// question is what is asked, and for whom.
type question[V any] struct {
	subject digest
	source  string // questions of one source wait for each other
	conn    string // if not empty, it has maxOfConn questions at most
	// ask returns an unavailableError if there is no answer. Other errors are a no.
	ask           func(context.Context) (V, error)
	until         func(V) time.Time // how long a yes is remembered
	maxRemembered int               // answers of each kind
}

// findAnswer returns the remembered answer, or asks. The error is a no, or an
// unavailableError.
func (r *reviewQueue[V]) findAnswer(ctx context.Context, q *question[V]) (V, error) {
	r.once.Do(func() {
		r.yes, r.no = cache.NewLRUExpireCache(q.maxRemembered), cache.NewLRUExpireCache(q.maxRemembered)
		r.known, r.others = turns.New[string](reviewsAtOnce, maxWaiting), turns.New[string](reviewsAtOnce, maxWaiting)
	})
	var none V
	for {
		if v, fresh := findCached[V](r.yes, q.subject); fresh {
			return v, nil
		}
		if err, fresh := findCached[error](r.no, q.subject); fresh {
			return none, err
		}
		p, first := r.joinReview(q)
		if p == nil {
			return none, unavailableError{errManyOfConn}
		}
		if first {
			r.leadReview(ctx, q, p)
			return p.value, p.err
		}
		select {
		case <-p.done:
			if !p.abandoned {
				return p.value, p.err
			}
		case <-ctx.Done():
			return none, unavailableError{fmt.Errorf("waiting for a review: %w", context.Cause(ctx))}
		}
	}
}

// joinReview returns the review of the question, and whether the caller is the first, who
// leads it; nil if the connection has too many.
func (r *reviewQueue[V]) joinReview(q *question[V]) (p *review[V], first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p = r.pending[q.subject]; p != nil {
		return p, false
	}
	if q.conn != "" && r.perConn[q.conn] >= maxOfConn {
		return nil, false
	}
	if r.pending == nil {
		r.pending, r.perConn = map[digest]*review[V]{}, map[string]int{}
	}
	p = &review[V]{done: make(chan struct{}), err: unavailableError{errUnanswered}}
	r.pending[q.subject] = p
	r.perConn[q.conn]++
	return p, true
}

// leadReview asks when it is the source's turn, and tells all that have joined.
func (r *reviewQueue[V]) leadReview(ctx context.Context, q *question[V], p *review[V]) {
	defer r.finishReview(q, p)
	queue := r.others
	if _, known := r.yes.Get(q.subject); known {
		queue = r.known
	}
	if err := queue.Enter(ctx, q.source); err != nil {
		p.abandoned, p.err = true, unavailableError{fmt.Errorf("waiting for a review: %w", err)}
		return
	}
	defer queue.Leave()
	p.value, p.err = q.ask(ctx)
	switch {
	case p.err == nil:
		addCached(r.yes, q.subject, p.value, q.until(p.value))
	case isUnavailable(p.err):
		p.abandoned = ctx.Err() != nil
	default:
		r.yes.Remove(q.subject)
		addCached(r.no, q.subject, p.err, time.Now().Add(refusalLife))
	}
}

func (r *reviewQueue[V]) finishReview(q *question[V], p *review[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, q.subject)
	if r.perConn[q.conn]--; r.perConn[q.conn] == 0 {
		delete(r.perConn, q.conn)
	}
	close(p.done)
}

// cachedAnswer is an answer that may be used until a time.
type cachedAnswer[V any] struct {
	value V
	until time.Time
}

func findCached[V any](c *cache.LRUExpireCache, key digest) (value V, fresh bool) {
	found, _ := c.Get(key)
	answer, _ := found.(cachedAnswer[V])
	return answer.value, time.Now().Before(answer.until)
}

func addCached[V any](c *cache.LRUExpireCache, key digest, value V, until time.Time) {
	c.Add(key, cachedAnswer[V]{value, until}, keepKnown)
}
