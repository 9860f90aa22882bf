package bed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds of what the bed waits for. They are generous: a machine under load
// is slow, and a condition that holds earlier ends the wait.
const (
	startTimeout = 90 * time.Second
	pollTimeout  = 30 * time.Second
	pollEvery    = 50 * time.Millisecond
	stopTimeout  = 5 * time.Second
	waitTimeout  = 10 * time.Minute
)

// stopError ends a Poll at once.
type stopError struct{ error }

// Stop wraps an error after which Poll does not try again.
func Stop(err error) error { return stopError{err} }

// Poll calls fn until it returns nil, returns an error made by Stop, or ctx
// ends; without a deadline in ctx, after half a minute. The error says what
// was waited for and what fn returned last.
func Poll(ctx context.Context, what string, fn func(context.Context) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, pollTimeout)
		defer cancel()
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := fn(ctx)
		if err == nil {
			return nil
		}
		if stop, ok := errors.AsType[stopError](err); ok {
			return fmt.Errorf("bed: waiting for %s: %w", what, stop.error)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("bed: waiting for %s: %w; last: %w", what, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
