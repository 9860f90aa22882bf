package tunnel

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/causewayproject/causeway/internal/mux"
)

// joint relays between a stream of a peer, near, and one of an agent, far. Both
// are of the multiplexer, which knows more of an end than a connection does: a
// reset passes with its code, and "I have sent all, and read no more" as that.
type joint struct {
	near, far *mux.Stream
	left      atomic.Bool // near's peer reads no more
	passed    atomic.Bool // all that it sent was written to far
}

// joinStreams returns when both directions have ended, or ctx has, and closes
// both streams.
func joinStreams(ctx context.Context, near, far *mux.Stream) {
	j := &joint{near: near, far: far}
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(aborted)
		near.Reset(uint32(CodeReset))
		far.Reset(uint32(CodeReset))
	})
	near.AfterReset(j.nearReset)
	var up sync.WaitGroup
	up.Go(j.copyUp)
	_, err := far.WriteTo(near)
	passEnd(near, err)
	up.Wait()
	if !stop() {
		<-aborted
	}
	near.Close()
	far.Close()
}

func (j *joint) copyUp() {
	_, err := j.near.WriteTo(j.far)
	passEnd(j.far, err)
	j.passed.Store(true)
	if j.left.Load() {
		j.far.Close()
	}
}

// nearReset passes at once what copyUp can't know while it waits for far, or once
// it has returned.
func (j *joint) nearReset(code uint32, ended bool) {
	if !ended {
		j.far.Reset(code)
		return
	}
	j.left.Store(true)
	if j.passed.Load() {
		j.far.Close()
	}
}

// passEnd tells dst how what was copied to it has ended: err is what the
// copying returned.
func passEnd(dst *mux.Stream, err error) {
	var op *net.OpError
	var reset *mux.ResetError
	switch {
	case err == nil:
		dst.CloseWrite()
	case !errors.As(err, &op) || op.Op != "read":
		// It is dst that takes no more. If it was reset, the other direction
		// finds that; if its reader went away, that one may go on to its end.
	case errors.As(err, &reset) && reset.Remote:
		dst.Reset(reset.Code)
	default:
		dst.Reset(uint32(CodeReset))
	}
}
