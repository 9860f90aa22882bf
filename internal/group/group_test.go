package group_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/group"
)

// isDone reports whether a channel is closed.
func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestGoAfterClose(t *testing.T) {
	g := group.New(t.Context())
	defer g.Cancel()
	ran := make(chan struct{})
	if !g.Go(func() { close(ran) }) {
		t.Fatal("got false of an open group")
	}
	<-ran
	g.Close()
	g.Close()
	if g.Go(func() { t.Error("ran after Close") }) || g.Enter() {
		t.Error("a closed group lets in")
	}
	<-g.Idle()
	if g.Accepting().Err() == nil || g.Context().Err() != nil {
		t.Errorf("got %v and %v, want the end of Accepting alone", g.Accepting().Err(), g.Context().Err())
	}
}

// member calls end when its group ends it.
type member struct{ end func() }

func (m *member) EndWithGroup() { m.end() }

func TestIdle(t *testing.T) {
	m := &member{func() {}}
	tests := []struct {
		name  string
		steps string // e(nter), a(dd), r(emove), l(eave), c(lose)
		want  bool
	}{
		{"open", "", false},
		{"open, all have left", "el", false},
		{"closed empty", "c", true},
		{"closed after the last", "elc", true},
		{"one is left", "eelc", false},
		{"one of two leaves later", "eecl", false},
		{"the last leaves later", "eecll", true},
		{"who came late was not let in", "eclc", true},
		{"a member is left", "ealc", false},
		{"a member of a closed group", "ecal", false},
		{"a member is removed", "ecalr", true},
		{"a member was removed before", "earlc", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := group.New(t.Context())
			defer g.Cancel()
			for _, step := range tt.steps {
				switch step {
				case 'e':
					g.Enter()
				case 'a':
					g.Add(m)
				case 'r':
					g.Remove(m)
				case 'l':
					g.Leave()
				case 'c':
					g.Close()
				}
			}
			if got := isDone(g.Idle()); got != tt.want {
				t.Errorf("got idle %v, want %v", got, tt.want)
			}
		})
	}
}

// TestContextsEnd: Accepting ends whether it was asked for before or after.
func TestContextsEnd(t *testing.T) {
	tests := []struct {
		name string
		end  func(g *group.Group, parent context.CancelFunc)
		ends bool // of Context
	}{
		{"closed", func(g *group.Group, _ context.CancelFunc) { g.Close() }, false},
		{"cancelled", func(g *group.Group, _ context.CancelFunc) { g.Cancel() }, true},
		{"the parent's end", func(_ *group.Group, parent context.CancelFunc) { parent() }, true},
	}
	for _, tt := range tests {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, before %t", tt.name, before), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				g := group.New(ctx)
				defer g.Cancel()
				if before && g.Accepting().Err() != nil || !g.Open() {
					t.Error("a new group lets nobody in")
				}
				tt.end(g, cancel)
				if err := g.Accepting().Err(); err == nil || g.Open() {
					t.Errorf("got the end of Accepting %v, open %t; want an end, false", err, g.Open())
				}
				if got := g.Context().Err() != nil; got != tt.ends {
					t.Errorf("got the end of Context %t, want %t", got, tt.ends)
				}
			})
		}
	}
}

// TestDrain: a member that ends by itself after a minute, or when it is
// cancelled, and has a goroutine or has none.
func TestDrain(t *testing.T) {
	tests := []struct {
		name  string
		limit time.Duration // of Drain's context; zero: it has ended
		took  time.Duration
	}{
		{"patient", time.Hour, time.Minute},
		{"impatient", time.Second, time.Second},
		{"cancelled", 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := group.New(t.Context())
				left, stayed := false, false
				g.Go(func() {
					m := &member{}
					m.end = sync.OnceFunc(func() {
						stayed = true
						g.Remove(m)
					})
					g.Add(m)
					time.AfterFunc(time.Minute, m.end)
				})
				g.Go(func() {
					select {
					case <-time.After(time.Minute):
					case <-g.Context().Done():
					}
					left = true
				})
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				began := time.Now()
				g.Drain(ctx)
				if took := time.Since(began); took != tt.took || !left || !stayed {
					t.Errorf("got %v, left %v and %v; want %v, true", took, left, stayed, tt.took)
				}
				if g.Context().Err() == nil || g.Enter() {
					t.Error("the group goes on")
				}
			})
		})
	}
}

// TestMemberEnds: once, whether it was added before or after.
func TestMemberEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := group.New(t.Context())
		ends := 0
		m := &member{func() { ends++ }}
		removed := &member{func() { t.Error("a member that was removed is ended") }}
		g.Add(removed)
		g.Remove(removed)
		g.Add(m)
		g.Cancel()
		g.Cancel()
		synctest.Wait()
		late := &member{func() { ends++ }}
		g.Add(late)
		synctest.Wait()
		if ends != 2 {
			t.Errorf("got %d ends of 2 members", ends)
		}
		g.Remove(m)
		g.Remove(late)
	})
}
