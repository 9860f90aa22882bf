package gateway

import (
	"context"
	"errors"
	"io"
	"net"
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

// speak serves a connection of such a door.
func (g *Gateway) speak(p *protocol, gr *group.Group, raw net.Conn) {
	reach := func(c *caller) net.Conn {
		target, err := c.reach(p)
		if err != nil {
			c.part(p.sorry(err))
			return nil
		}
		return target
	}
	g.receive(gr, raw, p.door, reach, func(err error) string {
		if g.TLS != nil && p.door != DoorSNI {
			return ""
		}
		return p.sorry(err)
	})
}

// reach goes from the first byte to the answer. Hooks have seen the error.
func (c *caller) reach(p *protocol) (net.Conn, error) {
	early, err := c.hear(p)
	if err != nil {
		return nil, err
	}
	c.letIn()
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
	c.conn.SetWriteDeadline(time.Now().Add(c.g.handshakeTimeout()))
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
func (c *caller) hear(p *protocol) ([]byte, error) {
	settle := context.AfterFunc(c.gr.Accepting(), func() { c.raw.SetReadDeadline(longAgo) })
	defer settle()
	early, err := p.hear(c.place.Context(), c)
	if stopped := settle(); err == nil && (!stopped || c.gr.Accepting().Err() != nil) {
		err = errShutdown
	}
	var told *Error
	if err != nil && !errors.As(err, &told) && (err != errSilent || c.displaced() != nil) {
		told = c.failHandshake(err)
		err = told.Err
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
