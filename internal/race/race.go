// Package race dials in several ways, one a little later than the other, and keeps the
// first connection (RFC 8305, section 5).
package race

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
)

// Attempt is the result of a dial.
type Attempt struct {
	Conn  net.Conn // nil if Err is set
	Err   error
	Final bool // Err decides: attempts that were or would be started later don't count
}

// finished is an attempt that has ended.
type finished struct {
	Attempt
	place int
}

// Dial makes n attempts by dial, in the order of their places: the next one as soon as one
// has failed, or when delay has passed, which is asked with how many are left. It returns
// the first connection, or nil if none came. failed is told the errors, in the order in
// which they came, that of a Final one at last. All attempts have ended when Dial returns.
func Dial(ctx context.Context, n int, delay func(left int) time.Duration, dial func(ctx context.Context, place int) Attempt, failed func(place int, err error)) net.Conn {
	if n == 1 { // the common case needs no goroutine
		a := dial(ctx, 0)
		if a.Err != nil {
			failed(0, a.Err)
		}
		return a.Conn
	}
	results, pending := make(chan finished, n), make([]bool, n)
	var dials sync.WaitGroup
	each, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		dials.Wait()
		close(results)
		for loser := range results {
			loser.closeConn()
		}
	}()
	timer := time.NewTimer(delay(n))
	defer timer.Stop()
	var final *finished
	for next, end := 0, n; ; {
		// The first attempt is started even if ctx has ended: its error says so.
		if next == 0 || next < end && ctx.Err() == nil {
			timer.Reset(delay(n - next))
			place := next
			next++
			pending[place] = true
			dials.Go(func() { results <- finished{dial(each, place), place} })
		}
		if !slices.Contains(pending[:end], true) {
			break
		}
		select {
		case <-timer.C:
		case a := <-results:
			pending[a.place] = false
			switch {
			case a.place >= end:
				a.closeConn()
			case a.Err == nil:
				return a.Conn
			case a.Final:
				final, end = &a, a.place
			default:
				failed(a.place, a.Err)
			}
		}
	}
	if final != nil {
		failed(final.place, final.Err)
	}
	return nil
}

func (a finished) closeConn() {
	if a.Conn != nil {
		abort.Close(a.Conn)
	}
}
