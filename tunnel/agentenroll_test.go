package tunnel_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// By the agent's clock the certificate has ended, by the server's it has not:
// the server decides.
func TestAgentsClockIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tunnel.Server{CertificateLife: 5 * time.Minute}
		b := newBed(t, s)
		if err := s.SetClock(func() time.Time { return time.Now().Add(-10 * time.Minute) }); err != nil {
			t.Fatal(err)
		}
		b.agent(&tunnel.Agent{})
		synctest.Wait()
		b.w.cut()
		b.dialUntil("echo:7").Close()
	})
}

// A key that is refused because of its name is not tried again with the next
// token.
func TestRevokedBeforeItsFirstCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		kept := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: kept}).stop()
		made, err := kept.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := b.s.Revoke(t.Context(), made.Identity()); err != nil {
			t.Fatal(err)
		}
		if err := kept.Save(t.Context(), &tunnel.Credentials{Key: made.Key}); err != nil {
			t.Fatal(err)
		}
		var inv atomic.Pointer[tunnel.Invitation]
		first := b.invite()
		inv.Store(&first)
		failed := make(chan error, 1000)
		b.start(&tunnel.Agent{
			Credentials: kept,
			Invitation:  func(context.Context) (tunnel.Invitation, error) { return *inv.Load(), nil },
			Hooks:       tunnel.AgentHooks{Failed: func(_ string, err error, _ time.Duration) { failed <- err }},
		})
		if err := <-failed; codeOf(err) != tunnel.CodeRevoked {
			t.Fatalf("got %v, want revoked", err)
		}
		second := b.invite()
		inv.Store(&second)
		if got := b.await(); got.Agent == made.Identity().Agent {
			t.Error("the agent has its old identity")
		}
	})
}

// An agent that slept through a rollover finds a server that it does not
// trust; a new invitation has the new pin.
func TestRolloverWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		kept := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: kept}).stop()
		next, err := tunnel.NewAuthority()
		if err != nil {
			t.Fatal(err)
		}
		if err := b.s.SetAuthority(next); err != nil {
			t.Fatal(err)
		}
		b.agent(&tunnel.Agent{Credentials: kept})
		b.echo().Close()
		if err := b.s.SetAuthority(&tunnel.Authority{Certificate: next.Certificate}); codeOf(err) != tunnel.CodeConfig {
			t.Errorf("got %v, want a configuration error", err)
		}
	})
}

// TestNoCredentials: an agent without a place for its key does not run.
func TestNoCredentials(t *testing.T) {
	if err := (&tunnel.Agent{}).Run(t.Context()); codeOf(err) != tunnel.CodeConfig || !strings.Contains(err.Error(), "field Credentials of the Agent is required") {
		t.Errorf("got %v, want the field's name", err)
	}
}
