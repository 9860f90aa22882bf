package controller

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// NewQueue waits 100 ms after a first failure, and a minute at most.
func NewQueue[K comparable]() workqueue.TypedRateLimitingInterface[K] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](100*time.Millisecond, time.Minute))
}

// Work calls reconcile for what is queued, by several workers and for each key
// one at a time, until ctx ends; it shuts the queue then, and returns when the
// workers have. A key that failed is queued again. queued is told of the queue's length,
// and may be nil.
func Work[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], workers int, queued func(depth int), reconcile func(context.Context, K) error) {
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for workNext(ctx, queue, queued, reconcile) {
			}
		})
	}
	all.Wait()
}

// workNext takes one key from the queue; false says that the queue is shut.
func workNext[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], queued func(int), reconcile func(context.Context, K) error) bool {
	key, shut := queue.Get()
	if shut {
		return false
	}
	defer queue.Done(key)
	if queued != nil {
		queued(queue.Len())
	}
	if ctx.Err() != nil {
		return true
	}
	if err := reconcile(ctx, key); err != nil && ctx.Err() == nil {
		queue.AddRateLimited(key)
		return true
	}
	queue.Forget(key)
	return true
}

// Spread makes d longer by up to a quarter, so that what was seen in the same
// second doesn't stay together.
func Spread(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/4+1))
}
