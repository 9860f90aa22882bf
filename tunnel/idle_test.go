package tunnel_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// An agent with nothing to do has no goroutine but those that wait for its
// peer: of each side the session's two and the reader of the control stream,
// of the agent Run and the one that takes streams, too. What a message needs
// ends with it.
func TestIdleGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		payload := func(context.Context, tunnel.Payload) error { return nil }
		b.agent(&tunnel.Agent{Payload: payload})
		synctest.Wait()
		before := runtime.NumGoroutine()
		const n, each = 10, 3 + 5
		for range n {
			b.agent(&tunnel.Agent{Payload: payload})
		}
		synctest.Wait()
		if got := runtime.NumGoroutine() - before; got != n*each {
			t.Errorf("got %d goroutines for %d agents, want %d", got, n, n*each)
		}
		for range 3 {
			if err := b.s.Push(t.Context(), testCluster, tunnel.Payload{Name: "a"}); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute) // keepalives
		synctest.Wait()
		if got := runtime.NumGoroutine() - before; got != n*each {
			t.Errorf("got %d goroutines for %d agents after payloads, want %d", got, n, n*each)
		}
	})
}
