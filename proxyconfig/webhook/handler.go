package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/proxyconfig"
)

// Options are a Handler's. The zero value works.
type Options struct {
	// HasSecret reports whether the namespace has the Secret with the key, from a cache.
	// While it has not, a reference of the Injector to it is optional: the pod starts
	// without the proxy, and does not wait for what may never come. Several goroutines
	// call it.
	//
	// If nil, references are as proxyconfig.Options has them.
	HasSecret func(namespace, secret, key string) bool
	// Hooks tell what happens.
	Hooks Hooks
}

// Hooks are called by the goroutine of the request. A nil hook is not called.
type Hooks struct {
	// Reviewed is called for each request, when it has been decided and before
	// the answer is written.
	Reviewed func(Review)
}

// A Review is a request and its result. There is no value of a
// variable in it, and no secret.
type Review struct {
	// UID is the API server's for the request. If reading the review fails, the
	// fields that were read before are set.
	UID string
	// Namespace and Name are the pod's. Name ends in "*" if the API server is yet
	// to make it up.
	Namespace, Name string
	// Operation is "CREATE", or "UPDATE" for an ephemeral container.
	Operation string
	DryRun    bool
	// Injected are the names of the containers that get variables. None where
	// they have a proxy of their own, or the pod is not in the Scope.
	Injected []string
	// Reason is what decided about the pod. Empty unless the request creates a pod
	// or adds an ephemeral container.
	Reason proxyconfig.Reason
	// Status is the HTTP status.
	Status int
	// Err is why it is not 200.
	Err error
	// Took is the time from the request's header to the decision.
	Took time.Duration
}

// A Handler answers AdmissionReviews. It is safe for concurrent use, and holds
// nothing that would have to be closed.
type Handler struct {
	injector atomic.Pointer[proxyconfig.Injector]
	opts     Options
}

var _ http.Handler = (*Handler)(nil)

// New returns a Handler that uses i, which may be nil until Use: requests are
// answered with 503 then.
func New(i *proxyconfig.Injector, opts Options) *Handler {
	h := &Handler{opts: opts}
	h.Use(i)
	return h
}

// Use replaces the Injector. Requests that have begun keep theirs.
func (h *Handler) Use(i *proxyconfig.Injector) { h.injector.Store(i) }

// A statusError is an error with its HTTP status.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func statusErrorf(status int, format string, args ...any) error {
	return &statusError{status, fmt.Errorf("webhook: "+format, args...)}
}

// statusOf returns the HTTP status of an error.
func statusOf(err error) int {
	if s, ok := errors.AsType[*statusError](err); ok {
		return s.status
	}
	return http.StatusInternalServerError
}

// ServeHTTP answers one AdmissionReview.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	told := Review{Status: http.StatusOK}
	answer, err := h.answer(r, &told)
	told.Took = time.Since(start)
	if err != nil {
		told.Status, told.Err = statusOf(err), err
	}
	if h.opts.Hooks.Reviewed != nil {
		h.opts.Hooks.Reviewed(told)
	}
	writeAnswer(w, answer, err)
}

func (h *Handler) answer(r *http.Request, told *Review) ([]byte, error) {
	i := h.injector.Load()
	if i == nil {
		return nil, statusErrorf(http.StatusServiceUnavailable, "no configuration yet")
	}
	return answerReview(r, func(_ context.Context, req *Request) ([]Operation, error) { return h.review(i, req, told) })
}
