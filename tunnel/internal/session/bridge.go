package session

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/causewayproject/causeway/internal/mux"
)

// bridge relays between a stream of a replica, near, and one of an agent, far.
// The multiplexer knows more about an end than a connection does, and a bridge
// passes all of it on (SPEC.md, section 7):
//
//	what ends on one side        what the other side sees
//	io.EOF (CloseWrite)          io.EOF; its own direction goes on
//	FIN and RST (Close)          io.EOF, and its writes fail
//	a reset with a code          a reset with that code
//	the session, or the context  a reset with code 10
type bridge struct {
	near, far *mux.Stream
	closed    atomic.Bool // near's other end has sent all, and reads no more
	copied    atomic.Bool // all that it sent was written to far
}

// Bridge relays between near and far until both directions, or ctx, have ended,
// and closes both streams.
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
	b.copied.Store(true)
	if b.closed.Load() {
		b.far.Close()
	}
}

// nearReset passes on an end that copyUp does not see: it may wait for room in far,
// or have returned. Whichever of the two comes last closes far, since closing it
// before all was copied would cut the copy.
func (b *bridge) nearReset(code uint32, ended bool) {
	if !ended {
		b.far.Reset(code)
		return
	}
	b.closed.Store(true)
	if b.copied.Load() {
		b.far.Close()
	}
}

// passEnd ends what dst sends, the way its source has ended. The error is that of
// the copy.
func passEnd(dst *mux.Stream, err error) {
	var op *net.OpError
	var reset *mux.ResetError
	switch {
	case err == nil:
		dst.CloseWrite()
	case !errors.As(err, &op) || op.Op != "read":
		// The write to dst has failed. If dst was reset, the other direction
		// sees it. If dst only reads no more, the other direction goes on.
	case errors.As(err, &reset) && (reset.Remote || reset.Code == mux.CodeBudget):
		dst.Reset(reset.Code)
	default:
		dst.Reset(codeReset)
	}
}
