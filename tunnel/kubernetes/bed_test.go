package kubernetes_test

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

const namespace = "system"

// clients are what the package needs of a clientset, which as a whole takes long to compile.
type clients struct {
	core           coreclient.CoreV1Interface
	discovery      discoveryclient.DiscoveryV1Interface
	authentication authenticationclient.AuthenticationV1Interface
	authorization  authorizationclient.AuthorizationV1Interface
}

func (c clients) CoreV1() coreclient.CoreV1Interface                { return c.core }
func (c clients) DiscoveryV1() discoveryclient.DiscoveryV1Interface { return c.discovery }
func (c clients) AuthenticationV1() authenticationclient.AuthenticationV1Interface {
	return c.authentication
}
func (c clients) AuthorizationV1() authorizationclient.AuthorizationV1Interface {
	return c.authorization
}

// newClients returns clients that share a rate limit, as a clientset's do.
func newClients(t *testing.T, config *rest.Config) clients {
	t.Helper()
	if qps := cmp.Or(config.QPS, rest.DefaultQPS); qps > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, cmp.Or(config.Burst, rest.DefaultBurst))
	}
	return clients{
		must(coreclient.NewForConfig(config))(t), must(discoveryclient.NewForConfig(config))(t),
		must(authenticationclient.NewForConfig(config))(t), must(authorizationclient.NewForConfig(config))(t),
	}
}

func must[C any](c C, err error) func(*testing.T) C {
	return func(t *testing.T) C {
		if t.Helper(); err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// client returns a client of its own, as each replica has one.
func client(t *testing.T, s *apitest.Server) clients {
	t.Helper()
	return newClients(t, s.Config())
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
