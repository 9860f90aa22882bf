package tunnel

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/causewayproject/causeway/internal/mux"
)

// joint relays between a stream of a peer, near, and one of an agent, far. Both
// are of the multiplexer, which knows more of an end than a connection does: a
// reset passes with its code, and "I have sent all, and read no more" as that.
type joint struct {
	near, far *mux.Stream
	joined    chan struct{} // closed when far is set, or will not be
	up        sync.WaitGroup
	ended     func() bool // stops the watch of the context
	aborted   chan struct{}
}

var errNotJoined = errors.New("there is nothing to write to")

// newJoint reads from near at once, so that a peer that gives up is noticed
// while its dial is under way: then it calls cancel. The caller calls join.
func newJoint(ctx context.Context, near *mux.Stream, cancel func()) *joint {
	j := &joint{near: near, joined: make(chan struct{}), aborted: make(chan struct{})}
	j.ended = context.AfterFunc(ctx, func() {
		defer close(j.aborted)
		near.Reset(uint32(CodeReset))
	})
	j.up.Go(func() { j.copyUp(cancel) })
	return j
}

// join says where near's data goes; nil: nowhere.
func (j *joint) join(far *mux.Stream) {
	j.far = far
	close(j.joined)
}

// wait waits for what newJoint began.
func (j *joint) wait() {
	j.up.Wait()
	if !j.ended() {
		<-j.aborted
	}
}

// relay returns when both directions have ended, and closes both streams.
func (j *joint) relay() {
	_, err := j.far.WriteTo(j.near)
	passEnd(j.near, err)
	j.wait()
	j.near.Close()
	j.far.Close()
}

func (j *joint) copyUp(cancel func()) {
	_, err := j.near.WriteTo(j)
	if err != nil {
		cancel() // the dial, if it is still under way
	}
	<-j.joined
	if j.far != nil {
		passEnd(j.far, err)
	}
}

// Write is for what comes from near. It waits for join.
func (j *joint) Write(p []byte) (int, error) {
	<-j.joined
	if j.far == nil {
		return 0, errNotJoined
	}
	return j.far.Write(p)
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
