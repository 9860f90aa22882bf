package status_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/status"
)

// However many look, the fleet is asked once in two seconds.
func TestOneAsksForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		h := &status.Handler{Fleet: func(context.Context) []tunnel.ReplicaStatus {
			calls.Add(1)
			time.Sleep(time.Second)
			return nil
		}}
		var looking sync.WaitGroup
		for range 50 {
			looking.Go(func() {
				if w := request(h, "GET", "/"); w.Code != 200 {
					t.Errorf("got %d, want 200", w.Code)
				}
			})
		}
		looking.Wait()
		time.Sleep(1999 * time.Millisecond)
		request(h, "GET", "/live")
		if got := calls.Load(); got != 1 {
			t.Errorf("got %d calls within two seconds, want 1", got)
		}
		time.Sleep(time.Millisecond)
		request(h, "GET", "/live")
		if got := calls.Load(); got != 2 {
			t.Errorf("got %d calls, want 2", got)
		}
	})
}

// Who asks and goes away neither cuts short what others wait for, nor waits.
func TestLookerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan context.Context, 1)
		answer := make(chan struct{})
		h := &status.Handler{Fleet: func(ctx context.Context) []tunnel.ReplicaStatus {
			asked <- ctx
			<-answer
			return []tunnel.ReplicaStatus{server("replica-a")}
		}}
		get := func(ctx context.Context) (*httptest.ResponseRecorder, chan struct{}) {
			w, done := httptest.NewRecorder(), make(chan struct{})
			go func() {
				defer close(done)
				h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
			}()
			synctest.Wait()
			return w, done
		}
		leaves, leave := context.WithCancel(t.Context())
		_, first := get(leaves)
		_, second := get(leaves)
		third, thirdDone := get(t.Context())
		leave()
		<-second
		ctx := <-asked
		if ctx.Err() != nil {
			t.Errorf("got a call that ended with the request, want one that goes on")
		}
		if until, ok := ctx.Deadline(); !ok || time.Until(until) != 10*time.Second {
			t.Errorf("got a deadline in %v, %v; want 10s", time.Until(until), ok)
		}
		close(answer)
		<-first
		<-thirdDone
		if !strings.Contains(third.Body.String(), "replica-a") {
			t.Errorf("got %s, want the replica", third.Body)
		}
	})
}

// A Fleet that panics takes nobody with it who comes later.
func TestFleetPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		h := &status.Handler{Fleet: func(context.Context) []tunnel.ReplicaStatus {
			if broken {
				panic("broken")
			}
			return nil
		}}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("got no panic, want Fleet's")
				}
			}()
			request(h, "GET", "/")
		}()
		broken = false
		if w := request(h, "GET", "/"); w.Code != 200 {
			t.Errorf("got %d, want 200", w.Code)
		}
	})
}
