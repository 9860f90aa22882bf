package kubernetes

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/turns"
)

const (
	// reviewsAtOnce is how many reviews of a kind the API server is asked for at
	// once: those that wait are served by source, those that were sent are not. So
	// strangers have a few of a client's requests at most, and not its whole queue.
	reviewsAtOnce = 4
	// maxWaiting is how many reviews of one source may wait for their turn.
	maxWaiting = 256
	// maxOfConn is how many reviews of one connection may be under way.
	maxOfConn = 16
	// rememberNo is how long a refusal is remembered.
	rememberNo = 5 * time.Second
)

var (
	errManyOfConn = errors.New("too many different tokens over one connection wait for their review")
	errUnanswered = errors.New("the review has not ended")
)

// digest is what is kept of a token, or of a token and a cluster.
type digest = [sha256.Size]byte

// reviews asks the API server questions of one kind, and remembers the answers.
// Equal questions are one while it is under way. The zero value is ready; it is
// safe for concurrent use.
type reviews[V any] struct {
	yes memory[digest, V]
	no  memory[digest, error]

	// Who had a yes before is not in one queue with strangers.
	once          sync.Once
	known, others *turns.Queue[string]

	mu      sync.Mutex // guards the fields below
	pending map[digest]*review[V]
	ofConn  map[string]int // of pending, by connection
}

// review is a question that is under way.
type review[V any] struct {
	done  chan struct{} // closed when the fields below are set
	left  bool          // who asked got no turn, or left: others ask for themselves
	value V
	err   error
}

// question is what is asked, and for whom.
type question[V any] struct {
	about  digest
	source string // of questions that wait for each other
	conn   string // if not empty, it has maxOfConn questions at most
	// ask returns an unavailable if there is no answer; other errors are a no.
	ask   func(context.Context) (V, error)
	until func(V) time.Time // a yes is remembered until then
	most  int               // answers that are remembered
}

// answer returns the answer that is remembered, or asks. The error is a no, or an
// unavailable.
func (r *reviews[V]) answer(ctx context.Context, q *question[V]) (V, error) {
	var none V
	for {
		if v, fresh, _ := r.yes.get(q.about); fresh {
			return v, nil
		}
		if err, fresh, _ := r.no.get(q.about); fresh {
			return none, err
		}
		p, first := r.join(q)
		if p == nil {
			return none, unavailable{errManyOfConn}
		}
		if first {
			r.lead(ctx, q, p)
			return p.value, p.err
		}
		select {
		case <-p.done:
			if !p.left {
				return p.value, p.err
			}
		case <-ctx.Done():
			return none, unavailable{fmt.Errorf("waiting for a review: %w", context.Cause(ctx))}
		}
	}
}

// join returns the review of the question, and whether the caller is the first, who
// leads it; nil if the connection has too many.
func (r *reviews[V]) join(q *question[V]) (p *review[V], first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p = r.pending[q.about]; p != nil {
		return p, false
	}
	if q.conn != "" && r.ofConn[q.conn] >= maxOfConn {
		return nil, false
	}
	if r.pending == nil {
		r.pending, r.ofConn = map[digest]*review[V]{}, map[string]int{}
	}
	p = &review[V]{done: make(chan struct{}), err: unavailable{errUnanswered}}
	r.pending[q.about] = p
	r.ofConn[q.conn]++
	return p, true
}

// lead asks when it is the source's turn, and tells all who have joined.
func (r *reviews[V]) lead(ctx context.Context, q *question[V], p *review[V]) {
	defer r.finish(q, p)
	queue := r.queue(q.about)
	if err := queue.Enter(ctx, q.source); err != nil {
		p.left, p.err = true, unavailable{fmt.Errorf("waiting for a review: %w", err)}
		return
	}
	defer queue.Leave()
	p.value, p.err = q.ask(ctx)
	switch {
	case p.err == nil:
		r.yes.put(q.about, p.value, q.until(p.value), q.most)
	case isUnavailable(p.err):
		p.left = ctx.Err() != nil
	default:
		r.yes.forget(q.about)
		r.no.put(q.about, p.err, time.Now().Add(rememberNo), q.most)
	}
}

func (r *reviews[V]) queue(about digest) *turns.Queue[string] {
	r.once.Do(func() {
		r.known, r.others = turns.New[string](reviewsAtOnce, maxWaiting), turns.New[string](reviewsAtOnce, maxWaiting)
	})
	if _, _, known := r.yes.get(about); known {
		return r.known
	}
	return r.others
}

func (r *reviews[V]) finish(q *question[V], p *review[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, q.about)
	if r.ofConn[q.conn]--; r.ofConn[q.conn] == 0 {
		delete(r.ofConn, q.conn)
	}
	close(p.done)
}
