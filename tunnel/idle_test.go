package tunnel_test

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// An agent with nothing to do has no goroutine but the session's reader on each
// side, and Run. What a message needs ends with it.
func TestIdleGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		payload := func(context.Context, tunnel.Payload) error { return nil }
		b.agent(&tunnel.Agent{Payload: payload})
		time.Sleep(time.Minute) // keepalives
		synctest.Wait()
		before := bubbled()
		const n, each = 10, 1 + 2
		for range n {
			b.agent(&tunnel.Agent{Payload: payload})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := bubbled() - before; got != n*each {
			t.Errorf("got %d goroutines for %d agents, want %d", got, n, n*each)
		}
		for range 3 {
			if err := b.s.Push(t.Context(), testCluster, tunnel.Payload{Name: "a"}); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := bubbled() - before; got != n*each {
			t.Errorf("got %d goroutines for %d agents after payloads, want %d", got, n, n*each)
		}
	})
}

// The second session of an agent is one goroutine of its own, and one of the
// server; nothing looks for a third.
func TestIdleGoroutinesOfTwoSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "a", "b", "c")
		m.meets(m.agent(&tunnel.Agent{Servers: []string{"a:1", "b:1"}}), "a", "b")
		time.Sleep(time.Minute)
		synctest.Wait()
		before := bubbled()
		const n, each = 10, 2*1 + 1 + 2*1
		for range n {
			m.meets(m.agent(&tunnel.Agent{Servers: []string{"a:1", "b:1"}}), "a", "b")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := bubbled() - before; got != n*each {
			t.Errorf("got %d goroutines for %d agents, want %d", got, n, n*each)
		}
	})
}

// bubbled counts the goroutines of bubbles: the runtime and other packages have
// theirs, which come and go.
func bubbled() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte(", synctest bubble "))
}

// Whoever names an authority that this process knows already brings no copy of
// it: neither a renewal, nor the enrolment of an agent whose connection has it.
func TestSameAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{CertificateLife: time.Hour})
		creds := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: creds})
		first, _ := creds.Load(t.Context())
		time.Sleep(50 * time.Minute)
		b.await()
		next, _ := creds.Load(t.Context())
		if next.Chain[0].Equal(first.Chain[0]) {
			t.Error("the certificate was not renewed")
		}
		if len(next.Roots) != 1 || next.Roots[0] != first.Roots[0] {
			t.Errorf("got %v after the renewal, want %v", next.Roots, first.Roots)
		}
		other := &tunnel.MemoryCredentials{}
		b.agent(&tunnel.Agent{Credentials: other})
		if its, _ := other.Load(t.Context()); its.Roots[0] != first.Roots[0] {
			t.Errorf("got %p of another enrolment, want %p", its.Roots[0], first.Roots[0])
		}
	})
}
