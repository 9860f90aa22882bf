package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/mux"
	"github.com/causewayproject/causeway/tunnel"
)

// inbox is what agents were sent: "agent name size".
type inbox struct {
	mu  sync.Mutex
	all []string
}

// agent takes payloads, or refuses them with the text.
func (i *inbox) agent(name, refusal string) *tunnel.Agent {
	return &tunnel.Agent{Replica: name, Payload: func(_ context.Context, p tunnel.Payload) error {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.all = append(i.all, fmt.Sprint(name, " ", p.Name, " ", len(p.Data)))
		if refusal != "" {
			return errors.New(refusal)
		}
		return nil
	}}
}

// take returns what has come since the last call.
func (i *inbox) take() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	got := i.all
	i.all = nil
	slices.Sort(got)
	return got
}

// Whichever replica pushes, the payload comes to all agents.
func TestPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b", "c")
		r.mesh()
		var got inbox
		if err := r.beds["a"].s.Push(t.Context(), testCluster, tunnel.Payload{Name: "early"}); codeOf(err) != tunnel.CodeNoAgent {
			t.Errorf("got %v without an agent", err)
		}
		r.at("b", got.agent("one", ""))
		r.at("b", got.agent("two", ""))
		r.at("c", got.agent("three", ""))
		for name, b := range r.beds {
			if err := b.s.Push(t.Context(), testCluster, tunnel.Payload{Name: "key", Data: bytes.Repeat([]byte("x"), 1<<20-100)}); err != nil {
				t.Errorf("by %s: %v", name, err)
			}
			if got := got.take(); !slices.Equal(got, []string{"one key 1048476", "three key 1048476", "two key 1048476"}) {
				t.Errorf("by %s: got %q", name, got)
			}
		}
		r.at("c", got.agent("four", "the disk is full"))
		err := r.beds["a"].s.Push(t.Context(), testCluster, tunnel.Payload{Name: "key"})
		if codeOf(err) != tunnel.CodeInternal || !strings.HasSuffix(err.Error(), "the disk is full") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want the one agent's refusal", err)
		}
		if got := got.take(); len(got) != 4 {
			t.Errorf("got %q, want all agents to have it", got)
		}
		if err := r.beds["a"].s.Push(t.Context(), "another/one", tunnel.Payload{Name: "key"}); codeOf(err) != tunnel.CodeNoAgent {
			t.Errorf("got %v for a cluster without agents", err)
		}
	})
}

// An agent with two sessions has the payload if one of them has taken it.
func TestPushTwoSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a", "b")
		r.mesh()
		var came atomic.Int32
		a := &tunnel.Agent{Servers: []string{"a:1", "b:1"}, Payload: func(context.Context, tunnel.Payload) error {
			if came.Add(1) == 1 {
				return errors.New("not this time")
			}
			return nil
		}}
		r.beds["a"].agent(a)
		for len(r.beds["b"].s.Status().Clusters) == 0 {
			time.Sleep(time.Second)
		}
		if err := r.beds["a"].s.Push(t.Context(), testCluster, tunnel.Payload{Name: "key"}); err != nil {
			t.Error(err)
		}
		if n := came.Load(); n != 2 {
			t.Errorf("the payload came %d times, want once by each session", n)
		}
	})
}

// An agent that has not answered may still take the payload, and the error says so.
func TestPushUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, "a")
		r.at("a", &tunnel.Agent{Replica: "slow", Payload: func(ctx context.Context, _ tunnel.Payload) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		}})
		err := r.beds["a"].s.Push(t.Context(), testCluster, tunnel.Payload{Name: "key"})
		if codeOf(err) != tunnel.CodeTimeout || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "may be under way still") {
			t.Errorf("got %v, want a timeout after which the agent may take the payload", err)
		}
		why := errors.New("the operator left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		err = r.beds["a"].s.Push(ctx, testCluster, tunnel.Payload{Name: "key"})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("got %v, want the context's error and its cause", err)
		}
	})
}

// What Push says of a replica that does not do its part.
func TestPushPeerErrors(t *testing.T) {
	have := func(then func(st *mux.Stream, session *mux.Session)) func(uint16, *mux.Stream, *mux.Session) {
		return func(kind uint16, st *mux.Stream, session *mux.Session) {
			if kind == kindAsk {
				have(st, 0)
				return
			}
			then(st, session)
		}
	}
	for _, tt := range []struct {
		name string
		b    func(uint16, *mux.Stream, *mux.Session)
		code tunnel.Code
		gone bool // before the next Push
	}{
		{"does not know PUSH", have(func(st *mux.Stream, _ *mux.Session) { st.Reset(uint32(tunnel.CodeBadRequest)) }), tunnel.CodeVersion, false},
		{"is lost", have(func(_ *mux.Stream, session *mux.Session) { session.Close() }), tunnel.CodeLost, true},
		{"is silent", have(func(_ *mux.Stream, session *mux.Session) { <-session.Done() }), tunnel.CodeTimeout, false},
		{"answers something else", have(func(st *mux.Stream, _ *mux.Session) { st.Write(rawMessage(17)) }), tunnel.CodeLost, false},
		{"answers nonsense", have(func(st *mux.Stream, _ *mux.Session) { st.Write(make([]byte, 99)) }), tunnel.CodeLost, false},
		{"has lost the agent's session", have(func(st *mux.Stream, _ *mux.Session) { st.Write(rawMessage(9, uint16(1), uint64(42))) }), tunnel.CodeLost, false},
		{"has no agent any more", have(func(st *mux.Stream, _ *mux.Session) { readRaw(st) }), tunnel.CodeNoAgent, true},
		{"does not answer ASK", serveRaw(time.Hour, 0), tunnel.CodeNoAgent, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, "a")
				r.raw("b", tt.b)
				r.members.set("a:1", "b:1")
				synctest.Wait()
				began := time.Now()
				err := r.beds["a"].s.Push(t.Context(), testCluster, tunnel.Payload{Name: "key"})
				if codeOf(err) != tt.code || !strings.HasPrefix(err.Error(), "tunnel: push ") {
					t.Errorf("got %v, want code %v", err, tt.code)
				}
				if took := time.Since(began); took > 31*time.Second {
					t.Errorf("took %v", took)
				}
				if tt.gone {
					r.members.set("a:1")
				}
				var got inbox
				r.at("a", got.agent("here", ""))
				if err := r.beds["a"].s.Push(t.Context(), testCluster, tunnel.Payload{Name: "key"}); (err == nil) != tt.gone || len(got.take()) != 1 {
					t.Errorf("got %v with an agent here", err)
				}
			})
		})
	}
}

// What a peer that pushes hears.
func TestPushFromPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{Name: "a"})
		var got inbox
		b.agent(got.agent("here", "no room"))
		c, err := tunnel.ServerCredentials(b.s.Authority)
		if err != nil {
			t.Fatal(err)
		}
		session := b.greetedPeer(c, "b")
		push := rawMessage(70, uint16(7), []byte(testCluster))
		for _, tt := range []struct {
			name  string
			then  []byte
			kind  uint16
			code  uint64
			reset uint32
		}{
			{"a payload", rawMessage(8, uint16(12), []byte("key")), 9, 1, 0},
			{"no payload", rawMessage(16), 0, 0, 9},
			{"one that is too long", []byte{0, 8, 1, 0, 0, 0, 0}, 0, 0, 9},
			{"nothing", nil, 0, 0, 9},
		} {
			began := time.Now()
			st, err := session.Open(t.Context(), slices.Concat(push, tt.then))
			if err != nil {
				t.Fatal(err)
			}
			kind, code, err := readRaw(st)
			if kind != tt.kind || code != tt.code || resetCode(err) != tt.reset {
				t.Errorf("%s: got %d, %d, %v", tt.name, kind, code, err)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("%s: took %v", tt.name, took)
			}
			st.Close()
		}
		if got := got.take(); !slices.Equal(got, []string{"here key 0"}) {
			t.Errorf("got %q", got)
		}
	})
}
