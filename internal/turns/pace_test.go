package turns_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causewayproject/causeway/internal/turns"
)

// A burst is free, what is more waits, two seconds at most, and time forgets all of it.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := turns.Pace{Burst: 100, Rate: 10}
		for _, step := range []struct {
			after time.Duration
			take  int
			want  time.Duration
			idle  bool // before
		}{
			{0, 100, 0, true},
			{0, 5, 500 * time.Millisecond, false},
			{time.Second, 0, 0, false},
			{0, 1000, 2 * time.Second, false},
			{time.Second, 0, time.Second, false},
			{5 * time.Second, 0, 0, false},
			{6 * time.Second, 0, 0, true},
		} {
			time.Sleep(step.after)
			if got := p.IsIdle(); got != step.idle {
				t.Errorf("%+v: idle %t", step, got)
			}
			if got := p.Take(step.take); got != step.want {
				t.Errorf("%+v: got %v", step, got)
			}
		}
	})
}

// A turn ends when it is given back, or after a while, and not twice.
func TestStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := turns.NewStarts(2, 10*time.Millisecond)
		enter := func() (func(), time.Duration) {
			began := time.Now()
			done, err := s.Enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return done, time.Since(began)
		}
		first, _ := enter()
		enter()
		first()
		for i, want := range []time.Duration{0, 10 * time.Millisecond, 0, 10 * time.Millisecond} {
			if _, took := enter(); took != want {
				t.Errorf("turn %d came after %v, want %v", i, took, want)
			}
		}
		first()
		enter()
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("left")
		cancel(why)
		if _, err := s.Enter(ctx); err != why {
			t.Errorf("got %v, want the cause", err)
		}
		time.Sleep(time.Second)
	})
}
