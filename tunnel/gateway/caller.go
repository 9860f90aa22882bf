package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
)

// caller is a client's connection.
type caller struct {
	g        *Gateway
	gr       *group.Group
	v        *visit
	raw      net.Conn  // as it was accepted
	conn     net.Conn  // with TLS, if the door has it
	deadline time.Time // for the request
	tls      tls.ConnectionState
	early    []byte // read, and not yet used

	mu        sync.Mutex       // guards the fields below
	place     *admission.Place // nil once the client was let in
	asking    int              // how often Authenticate is at work for the client
	lastWords func()           // called before the connection is cut; may be nil
}

// receive serves a connection until it ends. Who accepted it closes it. reach
// goes from the first byte to the answer, and returns the target's connection;
// nil if there is none. crowded is the last word to a client that is not even
// heard; empty if it would not be understood.
func (g *Gateway) receive(gr *group.Group, raw net.Conn, door Door, reach func(*caller) net.Conn, crowded func(error) string) {
	keepAlive(raw)
	c := &caller{g: g, gr: gr, raw: raw, conn: raw, deadline: time.Now().Add(g.handshakeTimeout())}
	stop := context.AfterFunc(gr.Context(), c.cut)
	defer stop()
	c.v = g.enter(door, raw.RemoteAddr())
	defer c.v.leave()
	raw.SetDeadline(c.deadline)
	target := c.fromPlace(reach, crowded)
	if target == nil {
		return
	}
	if !stop() { // from here on it is for the relay to end them
		abort.Reset(target, 0)
		abort.Reset(raw, 0) // the function may not have got there yet
		return
	}
	early := c.early
	c.early = nil // not to be kept for as long as the relay lasts
	c.v.relay(gr.Context(), early, c.conn, target)
}

// cut ends the connection by a reset: who was just told that it is connected must not
// take it for an end.
func (c *caller) cut() {
	c.mu.Lock()
	say := c.lastWords
	c.mu.Unlock()
	if say != nil {
		say()
	}
	abort.Reset(c.raw, 0)
}

// fromPlace calls reach when the client has a place among those who are not let
// in yet.
func (c *caller) fromPlace(reach func(*caller) net.Conn, crowded func(error) string) net.Conn {
	ctx, cancel := context.WithDeadline(c.gr.Context(), c.deadline)
	defer cancel()
	place, err := c.g.pending.Enter(ctx, c.raw)
	if err != nil {
		if err = admission.ErrCrowded; c.gr.Accepting().Err() != nil {
			err = errShutdown
		}
		io.WriteString(c.raw, crowded(c.v.fail(PhaseHandshake, err))) // there is no time for more
		return nil
	}
	defer place.Leave()
	c.place = place
	return reach(c)
}

// awaitClient is called before the client is waited for, after Authenticate is
// done, and after answers.
func (c *caller) awaitClient(stage admission.Stage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.place != nil && c.asking == 0 {
		c.place.Reach(stage)
		c.place.Wait()
	}
}

// beginAsking is called before Authenticate: a client that waits for it keeps its
// place. endAsking is called after it.
func (c *caller) beginAsking() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking++; c.place != nil {
		c.place.Compute()
	}
}

func (c *caller) endAsking(stage admission.Stage) {
	c.mu.Lock()
	c.asking--
	c.mu.Unlock()
	c.awaitClient(stage)
}

// letIn gives the place back: the client counts for MaxConns from now on.
func (c *caller) letIn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.place != nil {
		c.place.Leave()
		c.place = nil
	}
}

// displaced is why another client has the place now; nil if none has.
func (c *caller) displaced() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.place == nil {
		return nil
	}
	if cause := context.Cause(c.place.Context()); errors.Is(cause, admission.ErrCrowded) {
		return cause
	}
	return nil
}

// failHandshake tells Hooks why the client was not let in, and returns what it told.
func (c *caller) failHandshake(err error) *Error {
	if cause := c.displaced(); cause != nil {
		err = cause
	} else if errors.Is(err, os.ErrDeadlineExceeded) && c.gr.Accepting().Err() != nil {
		err = errShutdown
	}
	return c.v.fail(PhaseHandshake, err)
}

// keepAlive finds peers that are gone, within a minute and a half: a watch may
// be silent for hours, and nothing else ends it.
func keepAlive(conn net.Conn) {
	if tc, ok := conn.(*net.TCPConn); ok {
		tc.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 4})
	}
}
