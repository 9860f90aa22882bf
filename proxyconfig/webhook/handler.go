package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/proxyconfig"
)

// Options are a Handler's. The zero value works.
type Options struct {
	// NamespaceLabels returns the labels of a namespace, from a cache. It is
	// called for each pod whose namespace's labels may decide, by several
	// goroutines. An error is the HTTP status 500, and with it the failurePolicy.
	//
	// If nil, labels are left to the webhook's namespaceSelector; an AdmissionReview
	// does not have them. proxyconfig.Namespace says what that means.
	NamespaceLabels func(ctx context.Context, name string) (map[string]string, error)
	// HasSecret reports whether the namespace has the Secret with the key, from a cache.
	// While it has not, a reference of the Injector to it is optional: the pod starts
	// without the proxy, and does not wait for what may never come. Several goroutines
	// call it.
	//
	// If nil, references are as proxyconfig.Options has them.
	HasSecret func(namespace, secret, key string) bool
	// MaxBody is how many bytes an AdmissionReview may have. If 0, 8 MiB: the
	// API server takes objects of up to 3 MiB, and sends the old one, too.
	MaxBody int64
	// MaxBytes is how many bytes of AdmissionReviews of more than 64 KiB are held at
	// once; parsing needs as many again, and more. If it is less than MaxBody, it is
	// MaxBody. A further one waits for a second before it is read, and is answered
	// with the HTTP status 503. The others don't wait: of these, as many are held as
	// the server has connections.
	MaxBytes int64
	// Hooks tell what happens.
	Hooks Hooks
}

func (o *Options) maxBody() int64 {
	if o.MaxBody <= 0 {
		return 8 << 20
	}
	return o.MaxBody
}

func (o *Options) maxBytes() int64 { return max(o.MaxBytes, o.maxBody()) }

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
	large    byteBudget
	parsing  chan struct{} // has an element for each body that is being parsed
}

var _ http.Handler = (*Handler)(nil)

// New returns a Handler that uses i, which may be nil until Use: requests are
// answered with 503 then.
func New(i *proxyconfig.Injector, opts Options) *Handler {
	h := &Handler{opts: opts, large: byteBudget{free: opts.maxBytes()}, parsing: make(chan struct{}, maxParsed)}
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

// ServeHTTP answers one AdmissionReview.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	told := Review{Status: http.StatusOK}
	answer, err := h.answer(w, r, &told)
	if size := int64(len(answer)); size > smallBody { // its reader may be slow
		var release func()
		if release, err = h.takeLarge(r.Context(), size); err == nil {
			defer release()
		}
	}
	told.Took = time.Since(start)
	if err != nil {
		told.Status, told.Err = http.StatusInternalServerError, err
		var s *statusError
		if errors.As(err, &s) {
			told.Status = s.status
		}
	}
	if h.opts.Hooks.Reviewed != nil {
		h.opts.Hooks.Reviewed(told)
	}
	if err != nil {
		if told.Status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", http.MethodPost)
		}
		http.Error(w, err.Error(), told.Status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the API server's failurePolicy knows what to do
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request, told *Review) ([]byte, error) {
	i := h.injector.Load()
	if i == nil {
		return nil, statusErrorf(http.StatusServiceUnavailable, "no configuration yet")
	}
	if r.Method != http.MethodPost {
		return nil, statusErrorf(http.StatusMethodNotAllowed, "got %s, want POST", r.Method)
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, statusErrorf(http.StatusUnsupportedMediaType, "the content type is not application/json")
	}
	body, release, err := h.readBody(w, r)
	if err != nil {
		return nil, err
	}
	defer release()
	select {
	case h.parsing <- struct{}{}:
		defer func() { <-h.parsing }()
	case <-r.Context().Done():
		return nil, statusErrorf(http.StatusServiceUnavailable, "%w", context.Cause(r.Context()))
	}
	req, err := parseReview(body)
	if err != nil {
		return nil, err
	}
	response, err := h.review(r.Context(), i, req, told)
	if err != nil {
		return nil, err
	}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	})
}
