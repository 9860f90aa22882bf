package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/abort"
)

// connections makes the connections of a Client and closes them. client-go's
// connrotation does less: it lets a dial that ends after CloseAll go on.
type connections struct {
	dialer dialer.Dialer

	closed context.Context // ends dials that are under way
	end    context.CancelCauseFunc

	mu   sync.Mutex                // guards the fields below
	open map[*trackedConn]struct{} // nil once closed
	none chan struct{}             // closed when nothing is open; nil if nobody waits
}

func newConnections(d dialer.Dialer) *connections {
	closed, cancel := context.WithCancelCause(context.Background())
	return &connections{dialer: d, closed: closed, end: cancel, open: make(map[*trackedConn]struct{})}
}

func (c *connections) isClosed() bool { return c.closed.Err() != nil }

// explain returns errClosed for whatever fails after close.
func (c *connections) explain(err error) error {
	if c.isClosed() {
		return errClosed
	}
	return err
}

// DialContext dials until ctx ends or the connections are closed.
func (c *connections) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.closed, func() { cancel(errClosed) })
	defer stop()
	conn, err := c.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, c.explain(err)
	}
	t := &trackedConn{Conn: conn, owner: c}
	if !c.add(t) {
		abort.Close(conn)
		return nil, errClosed
	}
	return t, nil
}

func (c *connections) add(t *trackedConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return false
	}
	c.open[t] = struct{}{}
	return true
}

func (c *connections) remove(t *trackedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, t)
	if len(c.open) == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// wait returns when nothing is open, or ctx has ended.
func (c *connections) wait(ctx context.Context) {
	c.mu.Lock()
	if len(c.open) == 0 {
		c.mu.Unlock()
		return
	}
	if c.none == nil {
		c.none = make(chan struct{})
	}
	none := c.none
	c.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// close ends the dials that are under way and closes what is open.
func (c *connections) close() {
	c.end(errClosed)
	c.mu.Lock()
	open := c.open
	c.open = nil
	c.mu.Unlock()
	for t := range open {
		abort.Close(t.Conn)
	}
}

// trackedConn is known to its owner until it is closed.
type trackedConn struct {
	net.Conn
	owner *connections
}

var _ net.Conn = (*trackedConn)(nil)

func (t *trackedConn) Close() error {
	t.owner.remove(t)
	return t.Conn.Close()
}

// CloseWrite is for the bridge, whose clients may send their end.
func (t *trackedConn) CloseWrite() error {
	if cw, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return fmt.Errorf("half-close of %T: %w", t.Conn, errors.ErrUnsupported)
}

// NetConn returns the connection, for who resets it.
func (t *trackedConn) NetConn() net.Conn { return t.Conn }
