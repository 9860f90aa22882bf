// Package ended makes the error of a call whose context has ended.
package ended

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Error returns err, which is that of a call under ctx. If ctx has ended, errors.Is finds its
// error, and its cause, beside err, which may have come first or second. An err that only
// follows from the end, such as "use of closed network connection", is left out: also the
// context.Canceled of a call that was cancelled because the time was over.
func Error(ctx context.Context, err error) error {
	end := ctx.Err()
	if deadline, ok := ctx.Deadline(); ok && end == nil && !time.Now().Before(deadline) && TimedOut(err) {
		end = context.DeadlineExceeded // a socket's deadline may come before its context hears of it
	}
	if end == nil {
		return err
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, end) || errors.Is(err, cause) {
		cause = nil // it says no more
	}
	switch within := err != end && errors.Is(err, end); {
	case within && cause == nil:
		return err
	case within:
		return fmt.Errorf("%w: %w", cause, err)
	case cause != nil:
		end = fmt.Errorf("%w: %w", end, cause)
	}
	if err == nil || errors.Is(end, err) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.Canceled) {
		return end
	}
	return fmt.Errorf("%w: %w", end, err)
}

// TimedOut reports whether err says that it is a timeout.
func TimedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
