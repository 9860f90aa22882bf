package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/group"
)

var errLeft = errors.New("the client hung up")

// protocol is what clients of a door speak who get one target for a connection.
type protocol struct {
	door Door
	// hear reads what the client wants and lets it in, or not. It leaves in
	// early what it has read and the target shall get.
	hear func(ctx context.Context, c *caller) (early []byte, err error)
	// connected is for the client when its target is.
	connected string
	// sorry is the last word to a client for an error of hear or of the dial;
	// empty if it would not be understood.
	sorry func(err error) string
}

// speak serves a connection until it ends. Who accepted it closes it.
func (g *Gateway) speak(p *protocol, gr *group.Group, raw net.Conn) {
	keepAlive(raw)
	// A reset: who was just told that it is connected must not take it for an end.
	stop := context.AfterFunc(gr.Context(), func() { abort.Reset(raw, 0) })
	defer stop()
	deadline := time.Now().Add(orDefault(g.HandshakeTimeout, 10*time.Second))
	raw.SetDeadline(deadline)
	c := &caller{g: g, gr: gr, raw: raw, conn: raw}
	var err error
	if c.v, err = g.enter(p.door); err != nil {
		if g.TLS == nil || p.door == DoorSNI {
			io.WriteString(raw, p.sorry(err)) // there is no time for more
		}
		return
	}
	defer c.v.leave()
	target, err := c.reach(p, deadline)
	if err != nil {
		c.part(p.sorry(err))
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

// reach goes from the first byte to the answer. Hooks have seen the error.
func (c *caller) reach(p *protocol, deadline time.Time) (net.Conn, error) {
	early, err := c.hear(p, deadline)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(c.gr.Context())
	defer cancel(nil)
	c.conn.SetDeadline(time.Time{})
	stop := c.watch(func() { cancel(errLeft) })
	target, err := c.v.dial(ctx)
	stop()
	if err != nil {
		return nil, err
	}
	if context.Cause(ctx) == errLeft { // the dial has not cared
		abort.Reset(target, 0)
		return nil, c.v.fail(PhaseDial, errLeft)
	}
	c.early = append(early, c.early...)
	c.conn.SetWriteDeadline(time.Now().Add(orDefault(c.g.HandshakeTimeout, 10*time.Second)))
	if p.connected != "" {
		_, err = io.WriteString(c.conn, p.connected)
	}
	if err != nil {
		abort.Reset(target, 0)
		return nil, c.v.fail(PhaseRelay, err)
	}
	c.conn.SetWriteDeadline(time.Time{})
	return target, nil
}

// hear is p.hear, which ends when the group lets no more in: who has asked for
// nothing yet is not waited for.
func (c *caller) hear(p *protocol, deadline time.Time) ([]byte, error) {
	ctx, cancel := context.WithDeadline(c.gr.Context(), deadline)
	defer cancel()
	settle := context.AfterFunc(c.gr.Accepting(), func() { c.raw.SetReadDeadline(longAgo) })
	defer settle()
	early, err := p.hear(ctx, c)
	if errors.Is(err, os.ErrDeadlineExceeded) && c.gr.Accepting().Err() != nil {
		err = errShutdown
	}
	if stopped := settle(); err == nil && (!stopped || c.gr.Accepting().Err() != nil) {
		err = errShutdown
	}
	var told *Error
	if err != nil && err != errSilent && !errors.As(err, &told) {
		c.v.fail(PhaseHandshake, err)
	}
	return early, err
}

// part says the last word to a client that is refused, and reads on for a
// while: see lingerTime.
func (c *caller) part(word string) {
	if word == "" {
		return
	}
	c.raw.SetWriteDeadline(time.Now().Add(lingerTime))
	if _, err := io.WriteString(c.conn, word); err == nil {
		c.linger()
	}
}
