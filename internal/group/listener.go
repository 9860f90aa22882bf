package group

import (
	"cmp"
	"context"
	"net"
	"sync"
)

// Listener accepts the connections of another listener once each has been prepared, in a
// goroutine of its own: none waits for another. Make one by [NewListener].
type Listener struct {
	addr  net.Addr
	conns chan net.Conn
	stop  context.CancelFunc
	ended chan struct{} // closed when nothing is accepted any more
	err   error         // why; set before ended is closed
	wg    sync.WaitGroup
}

// NewListener returns a Listener of the connections of l. prepare returns what Accept is to
// return, or nil if it has closed the connection. It ends soon after its context, which ends
// when the Listener is closed or l fails.
func NewListener(l net.Listener, prepare func(context.Context, net.Conn) net.Conn) *Listener {
	ctx, stop := context.WithCancel(context.Background())
	p := &Listener{addr: l.Addr(), conns: make(chan net.Conn), stop: stop, ended: make(chan struct{})}
	p.wg.Go(func() {
		defer close(p.ended)
		err := new(Set).Serve(ctx, l, 0, func(g *Group, raw net.Conn) {
			conn := prepare(g.Context(), raw)
			if conn == nil {
				return
			}
			select {
			case p.conns <- conn:
			case <-g.Context().Done():
				conn.Close()
			}
		})
		p.err = cmp.Or(err, net.ErrClosed)
	})
	return p
}

// Accept returns the next connection.
func (p *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ended:
		return nil, p.err
	}
}

// Close closes the other listener, and waits for what is being prepared, which it ends.
// Connections that were accepted live on.
func (p *Listener) Close() error {
	p.stop()
	p.wg.Wait()
	return nil
}

// Addr returns the address of the other listener.
func (p *Listener) Addr() net.Addr { return p.addr }
