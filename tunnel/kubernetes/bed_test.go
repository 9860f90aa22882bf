package kubernetes_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientset "k8s.io/client-go/kubernetes"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

const namespace = "system"

// client returns a client of its own, as each replica has one.
func client(t *testing.T, s *apitest.Server) clientset.Interface {
	t.Helper()
	c, err := clientset.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start calls run until the test, or stop, ends it. It has to return nil.
func start(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got %v at the end, want nil", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// receive waits for the next value.
func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: nothing came in 30 seconds", what)
		panic("unreachable")
	}
}

// tell returns a hook for c that never blocks.
func tell[T any](c chan<- T) func(T) {
	return func(v T) {
		select {
		case c <- v:
		default:
		}
	}
}

// asked counts the requests for one object, with that method.
func asked(s *apitest.Server, method string) *atomic.Int64 {
	n := new(atomic.Int64)
	s.SetFault(func(r *http.Request) int {
		if r.Method == method && strings.Contains(r.URL.Path, "/secrets/") {
			n.Add(1)
		}
		return 0
	})
	return n
}

// away makes the API server fail, and ends its watches.
func away(s *apitest.Server) {
	s.SetFault(func(*http.Request) int { return http.StatusInternalServerError })
	s.Gap(func() {})
}

// watchSlices returns a Watch of the Service "tunnel".
func watchSlices(t *testing.T, api *apitest.Server, port string, got chan<- []string, errs chan<- error) func(context.Context) error {
	s := kubernetes.EndpointSlices{Client: client(t, api), Namespace: namespace, Service: "tunnel", Port: port}
	if errs != nil {
		s.Error = tell(errs)
	}
	return func(ctx context.Context) error {
		return s.Watch(ctx, func(zones map[string]string) { got <- slices.Sorted(maps.Keys(zones)) })
	}
}
