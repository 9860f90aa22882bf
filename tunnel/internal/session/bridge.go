package session

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/causewayproject/causeway/internal/mux"
)

// bridge relays between a stream of a peer, near, and one of an agent, far. Both
// are of the multiplexer, which knows more of an end than a connection does: a
// reset passes with its code, and "I have sent all, and read no more" as that.
type bridge struct {
	near, far *mux.Stream
	left      atomic.Bool // near's peer reads no more
	passed    atomic.Bool // all that it sent was written to far
}

// Bridge returns when both directions have ended, or ctx has, and closes
// both streams.
func Bridge(ctx context.Context, near, far *mux.Stream) {
	b := &bridge{near: near, far: far}
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(aborted)
		near.Reset(codeReset)
		far.Reset(codeReset)
	})
	near.AfterReset(b.nearReset)
	var up sync.WaitGroup
	up.Go(b.copyUp)
	_, err := far.WriteTo(near)
	passEnd(near, err)
	up.Wait()
	if !stop() {
		<-aborted
	}
	near.Close()
	far.Close()
}

func (b *bridge) copyUp() {
	_, err := b.near.WriteTo(b.far)
	passEnd(b.far, err)
	b.passed.Store(true)
	if b.left.Load() {
		b.far.Close()
	}
}

// nearReset passes at once what copyUp can't know while it waits for far, or once
// it has returned.
func (b *bridge) nearReset(code uint32, ended bool) {
	if !ended {
		b.far.Reset(code)
		return
	}
	b.left.Store(true)
	if b.passed.Load() {
		b.far.Close()
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
		dst.Reset(codeReset)
	}
}
