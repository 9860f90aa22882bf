package tunnel_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// hangingStore answers nothing while it hangs: one behind a network that drops
// what it is sent.
type hangingStore struct {
	tunnel.MemoryStore
	hangs atomic.Bool
}

func (s *hangingStore) wait(ctx context.Context) error {
	if !s.hangs.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *hangingStore) Get(ctx context.Context, kind tunnel.Kind, name string) (tunnel.Record, error) {
	if err := s.wait(ctx); err != nil {
		return tunnel.Record{}, err
	}
	return s.MemoryStore.Get(ctx, kind, name)
}

// An agent that the Store keeps waiting is told that the server can't, while
// both still listen; its token is good when the Store is back.
func TestStoreHangs(t *testing.T) {
	for _, tt := range []struct {
		name     string
		enrolled bool
	}{{"enrolment", false}, {"session", true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &hangingStore{}
				b := newBed(t, &tunnel.Server{Store: store})
				failed := make(chan error, 1000)
				a := &tunnel.Agent{
					HandshakeTimeout: 12 * time.Second, // it began before the server's
					Credentials:      &tunnel.MemoryCredentials{},
					Hooks:            tunnel.AgentHooks{Failed: func(_ string, err error, _ time.Duration) { failed <- err }},
				}
				inv := b.invite()
				a.Invitation = func(context.Context) (tunnel.Invitation, error) { return inv, nil }
				if tt.enrolled {
					b.agent(a).stop()
				}
				store.hangs.Store(true)
				b.start(a)
				began := time.Now()
				if err := <-failed; codeOf(err) != tunnel.CodeInternal {
					t.Errorf("got %v after %v, want the server's refusal", err, time.Since(began))
				}
				store.hangs.Store(false)
				b.await()
				b.echo().Close()
			})
		})
	}
}
