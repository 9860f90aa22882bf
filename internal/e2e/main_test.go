// Package e2e holds the end-to-end tests. They need root and a few programs;
// .ci/e2e runs them with all of that in place.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if code, ok := bed.PlayRole(roles); ok {
		return code
	}
	ctrl.SetLogger(logr.Discard()) // the installation of CRDs logs each of them
	if missing := bed.Missing(context.Background()); len(missing) > 0 {
		fmt.Fprintln(os.Stderr, "the end-to-end tests need what is missing here:")
		for _, what := range missing {
			fmt.Fprintln(os.Stderr, "  -", what)
		}
		if os.Getenv("CI") == "true" {
			return 1
		}
		fmt.Fprintln(os.Stderr, "SKIPPED: no end-to-end test has run")
		return 0
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	shared.ctx = ctx
	finished := make(chan struct{})
	interrupted := make(chan struct{})
	go func() {
		defer close(interrupted)
		select {
		case <-ctx.Done():
			closeShared()
			os.Exit(130)
		case <-finished:
		}
	}()
	code := m.Run()
	close(finished)
	<-interrupted
	stop()
	if table := interop.Load(); table != nil {
		fmt.Printf("the interop matrix:\n\n%s\n", table)
	}
	return max(code, closeShared(), leaked())
}

// interop is the matrix, once it has run.
var interop atomic.Pointer[interopTable]

// shared is the bed of all tests: it starts with the first that wants it.
var shared struct {
	ctx context.Context // ends with an interrupt

	mu     sync.Mutex // guards the fields below
	bed    *bed.Bed
	err    error
	closed bool
}

func sharedBed(t testing.TB) *bed.Bed {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.closed {
		t.Fatal("interrupted")
	}
	if shared.bed == nil && shared.err == nil {
		shared.bed, shared.err = bed.Start(shared.ctx)
	}
	if shared.err != nil {
		t.Fatalf("start the bed: %v", shared.err)
	}
	b := shared.bed
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs of the bed:\n%s", b.Logs())
		}
	})
	return b
}

func closeShared() int {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.closed = true
	if shared.bed == nil {
		return 0
	}
	if err := shared.bed.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// spdystream waits for ever for a stream that the bed's kubelet reads no more, since its client has gone:
// KubeadmControlPlane's dialer does that. The connection is closed.
var spdystream = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Connection).frameHandler"),
	goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Connection).Serve"),
	goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Connection).shutdown"),
	goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Connection).shutdown.func1"),
}

func leaked() int {
	var err error
	for range 10 { // Find itself waits a second or two
		if err = goleak.Find(spdystream...); err == nil {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, errors.Join(errors.New("goroutines leaked"), err))
	return 1
}
