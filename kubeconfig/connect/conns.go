package connect

import (
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/abort"
	"github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

// connections makes connections and closes them all. client-go's connrotation
// does less: it lets a dial that ends after CloseAll go on.
type connections struct {
	closed context.Context // ends dials that are under way
	end    context.CancelCauseFunc

	mu   sync.Mutex                // guards the fields below
	open map[*trackedConn]struct{} // nil once closed
}

func newConnections() *connections {
	closed, cancel := context.WithCancelCause(context.Background())
	return &connections{closed: closed, end: cancel, open: make(map[*trackedConn]struct{})}
}

func (c *connections) isClosed() bool { return c.closed.Err() != nil }

// explainError returns why the connections were closed, for whatever fails then.
func (c *connections) explainError(err error) error {
	if c.isClosed() {
		return context.Cause(c.closed)
	}
	return err
}

// dial dials with d until ctx ends or the connections are closed.
func (c *connections) dial(ctx context.Context, d dialer.Dialer, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.closed, func() { cancel(context.Cause(c.closed)) })
	defer stop()
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, c.explainError(err)
	}
	t := &trackedConn{Conn: conn, owner: c}
	if !c.add(t) {
		abort.Close(conn)
		return nil, context.Cause(c.closed)
	}
	return t, nil
}

// dialFunc returns a dial function that dials with d.
func (c *connections) dialFunc(d dialer.Dialer) route.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return c.dial(ctx, d, network, address)
	}
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
}

// close ends the dials that are under way and closes what is open. Those who
// use it hear of the first cause.
func (c *connections) close(cause error) {
	c.end(cause)
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

// CloseWrite lets the bridge pass on a client's half-close.
func (t *trackedConn) CloseWrite() error { return relay.CloseWrite(t.Conn) }

// NetConn returns the connection, for the code that resets it.
func (t *trackedConn) NetConn() net.Conn { return t.Conn }

var errClosed = route.ErrClosed

// replacedError ends connections that still used an old kubeconfig. It is a reset:
// after one, client-go repeats a GET and resumes a watch.
type replacedError struct{}

var errReplaced error = replacedError{}

func (replacedError) Error() string {
	return "connect: cut, since another kubeconfig has replaced the one in use: connection reset by peer"
}

func (replacedError) Unwrap() error { return syscall.ECONNRESET }
