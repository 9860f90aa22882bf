package linktest

import (
	"net"
	"sync"

	"github.com/causewayproject/causeway/internal/abort"
)

// conn is a connection over the link.
type conn struct {
	link           *Link
	client, target net.Conn
	up, down       *lane

	once sync.Once
	done chan struct{} // closed by reset
}

func newConn(l *Link, client, target net.Conn) *conn {
	c := &conn{link: l, client: client, target: target, done: make(chan struct{})}
	c.up, c.down = newLane(c, &l.up, client, target), newLane(c, &l.down, target, client)
	c.up.back, c.down.back = c.down, c.up
	return c
}

// run ends when both directions have, or are reset.
func (c *conn) run() {
	var wg sync.WaitGroup
	for _, l := range []*lane{c.up, c.down} {
		wg.Go(l.receive)
		wg.Go(l.deliver)
	}
	wg.Wait()
	c.client.Close()
	c.target.Close()
	c.link.remove(c)
}

// reset ends both sides at once.
func (c *conn) reset() {
	c.once.Do(func() { close(c.done) })
	abort.Reset(c.client, 0)
	abort.Reset(c.target, 0)
}

// forget resets one side, and nothing passes any more.
func (c *conn) forget(lost Side) {
	c.up.silent.Store(true)
	c.down.silent.Store(true)
	if lost == Client {
		abort.Reset(c.client, 0)
	} else {
		abort.Reset(c.target, 0)
	}
}
