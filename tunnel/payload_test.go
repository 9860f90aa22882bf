package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// Payloads come at connect and by Push, in their order.
func TestPayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got, delivered []string
		s := &tunnel.Server{
			Payloads: func(context.Context, tunnel.Identity) ([]tunnel.Payload, error) {
				return []tunnel.Payload{{Name: "a", Data: []byte("1")}, {Name: "bad"}, {Name: "b", Data: make([]byte, 1<<20-100)}}, nil
			},
			Hooks: tunnel.Hooks{Delivered: func(_ tunnel.Identity, name string, err error) {
				mu.Lock()
				defer mu.Unlock()
				delivered = append(delivered, fmt.Sprint(name, " ", err))
			}},
		}
		b := newBed(t, s)
		b.agent(&tunnel.Agent{Payload: func(_ context.Context, p tunnel.Payload) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprint(p.Name, " ", len(p.Data)))
			if p.Name == "bad" {
				return errors.New("not\nthis")
			}
			return nil
		}})
		synctest.Wait()
		for i := range 20 {
			if err := s.Push(t.Context(), testCluster, tunnel.Payload{Name: fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		}
		want := []string{"a 1", "bad 0", "b 1048476"}
		for i := range 20 {
			want = append(want, fmt.Sprint(i, " 0"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		want = []string{"a <nil>", "bad tunnel: push default/prod: not this", "b <nil>"}
		if !slices.Equal(delivered, want) {
			t.Errorf("got %q, want %q", delivered, want)
		}
	})
}

func TestPushErrors(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name    string
		cluster string
		ctx     context.Context
		take    func(b *bed) func(context.Context, tunnel.Payload) error
		size    int
		code    tunnel.Code
	}{
		{name: "no agent", cluster: "other", code: tunnel.CodeNoAgent},
		{name: "the agent takes none", code: tunnel.CodeInternal},
		{name: "refused", code: tunnel.CodeInternal, take: func(*bed) func(context.Context, tunnel.Payload) error {
			return func(context.Context, tunnel.Payload) error { return errors.New("no") }
		}},
		{name: "too large", size: 1 << 20, code: tunnel.CodeConfig},
		{name: "slow", code: tunnel.CodeTimeout, take: func(*bed) func(context.Context, tunnel.Payload) error {
			return func(ctx context.Context, _ tunnel.Payload) error { <-ctx.Done(); time.Sleep(time.Second); return nil }
		}},
		{name: "canceled", ctx: canceled, code: tunnel.CodeCanceled},
		{name: "the agent goes", code: tunnel.CodeLost, take: func(b *bed) func(context.Context, tunnel.Payload) error {
			return func(context.Context, tunnel.Payload) error { b.w.cut(); return nil }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &tunnel.Server{})
				a := &tunnel.Agent{FirstBackoff: time.Hour, MaxBackoff: time.Hour}
				if tt.take != nil {
					a.Payload = tt.take(b)
				}
				b.agent(a)
				if tt.ctx == nil {
					tt.ctx = t.Context()
				}
				err := b.s.Push(tt.ctx, orString(tt.cluster, testCluster), tunnel.Payload{Name: "x", Data: make([]byte, tt.size)})
				if codeOf(err) != tt.code {
					t.Errorf("got %v, want code %d", err, tt.code)
				}
			})
		})
	}
}

// A Payload that takes its time keeps the agent neither from draining nor
// from renewing, and more than it can keep are refused.
func TestSlowPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{Payload: func(ctx context.Context, _ tunnel.Payload) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		refused := make(chan error, 100)
		for range 40 {
			go func() { refused <- b.s.Push(t.Context(), testCluster, tunnel.Payload{Name: "x"}) }()
		}
		for range 40 - 17 { // one is with Payload, 16 wait
			if err := <-refused; err == nil || !strings.Contains(err.Error(), "too many payloads") {
				t.Errorf("got %v, want a refusal", err)
			}
		}
		next, err := tunnel.NewAuthority()
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		next.Trusted = append(next.Trusted, b.s.Authority.Certificate)
		if err := b.s.SetAuthority(next); err != nil {
			t.Error(err)
		}
		b.stopServe()
		if err := <-b.served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("draining took %v", took)
		}
	})
}
