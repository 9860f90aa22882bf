package controllers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// namespaceTurns shares the workers of a controller fairly. A controller's queue is in the
// order of events, so that a namespace with many objects, or with slow ones, would hold all
// workers. Here the namespaces take turns, and the last free worker is for a namespace that
// has none.
//
// No worker waits for its turn: the request is put aside, and queued again when it is its
// turn. An object that changes all the time has its turn once in turnInterval, after the
// first freeTurns.
type namespaceTurns struct {
	reconcile.Reconciler
	workqueue.TypedRateLimiter[reconcile.Request]

	mu      sync.Mutex // guards the fields below
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	free    int                             // workers
	running map[string]int                  // by namespace
	aside   map[string][]reconcile.Request  // by namespace
	order   []string                        // the keys of aside, the next one first
	waiting map[reconcile.Request]bool      // are in aside
	chosen  map[reconcile.Request]bool      // have a worker, and are in the queue
	spared  map[reconcile.Request]bool      // were put aside just now
	paid    map[reconcile.Request]time.Time // each turn adds turnInterval, from now on at least
	swept   time.Time                       // when paid lost what is over
}

const turnInterval, freeTurns = time.Second, 20

// shareWorkers has the controller's workers take turns. The source that it returns is to
// be watched.
func shareWorkers(opts *controller.Options) source.Source {
	t := &namespaceTurns{
		Reconciler: opts.Reconciler, TypedRateLimiter: opts.RateLimiter, free: max(opts.MaxConcurrentReconciles, 1),
		running: map[string]int{}, aside: map[string][]reconcile.Request{}, waiting: map[reconcile.Request]bool{},
		chosen: map[reconcile.Request]bool{}, spared: map[reconcile.Request]bool{}, paid: map[reconcile.Request]time.Time{},
	}
	opts.Reconciler, opts.RateLimiter = t, t
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.queue = queue
		return nil
	})
}

// turnOf is whose turn a request waits for. A request for a Namespace has only a name.
func turnOf(request reconcile.Request) string { return cmp.Or(request.Namespace, request.Name) }

// Reconcile calls the Reconciler if it is the request's turn.
func (t *namespaceTurns) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if !t.takeTurn(request) {
		return reconcile.Result{}, nil
	}
	defer t.endTurn(turnOf(request))
	if wait := t.untilPaid(request, time.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return t.Reconciler.Reconcile(ctx, request)
}

// Forget keeps the failures of a request that was put aside.
func (t *namespaceTurns) Forget(request reconcile.Request) {
	t.mu.Lock()
	spared := t.spared[request]
	delete(t.spared, request)
	t.mu.Unlock()
	if !spared {
		t.TypedRateLimiter.Forget(request)
	}
}

// takeTurn returns false if the request was put aside.
func (t *namespaceTurns) takeTurn(request reconcile.Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.chosen[request] {
		t.putAsideLocked(request)
		t.chooseLocked(request)
	}
	taken := t.chosen[request]
	delete(t.chosen, request)
	if !taken {
		t.spared[request] = true
	}
	return taken
}

// untilPaid counts a turn of the request, or returns when it may have one.
func (t *namespaceTurns) untilPaid(request reconcile.Request, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.swept) > turnInterval {
		t.swept = now
		maps.DeleteFunc(t.paid, func(_ reconcile.Request, until time.Time) bool { return until.Before(now) })
	}
	ahead := max(t.paid[request].Sub(now), 0) + turnInterval
	if wait := ahead - freeTurns*turnInterval; wait > 0 {
		t.spared[request] = true
		return wait
	}
	t.paid[request] = now.Add(ahead)
	return 0
}

func (t *namespaceTurns) putAsideLocked(request reconcile.Request) {
	if t.waiting[request] {
		return
	}
	t.waiting[request] = true
	namespace := turnOf(request)
	if t.aside[namespace] == nil {
		t.order = append(t.order, namespace)
	}
	t.aside[namespace] = append(t.aside[namespace], request)
}

func (t *namespaceTurns) endTurn(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	if t.running[namespace]--; t.running[namespace] == 0 {
		delete(t.running, namespace)
	}
	t.chooseLocked(reconcile.Request{})
}

// chooseLocked gives the free workers to requests that were put aside, and queues these,
// without the caller's own.
func (t *namespaceTurns) chooseLocked(own reconcile.Request) {
	for n := 0; t.free > 0 && n < len(t.order); {
		namespace := t.order[n]
		if t.free == 1 && t.running[namespace] > 0 {
			n++
			continue
		}
		next := t.aside[namespace][0]
		t.aside[namespace] = t.aside[namespace][1:]
		t.order = slices.Delete(t.order, n, n+1)
		if len(t.aside[namespace]) == 0 {
			delete(t.aside, namespace)
		} else {
			t.order = append(t.order, namespace)
		}
		delete(t.waiting, next)
		t.free--
		t.running[namespace]++
		t.chosen[next] = true
		if n = 0; next != own {
			t.queue.Add(next)
		}
	}
}
