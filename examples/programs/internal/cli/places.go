package cli

import (
	"context"
	"net"
	"sync"

	"github.com/causewayproject/causeway/internal/admission"
)

// maxPages is how many connections a page has at once. Others wait for a place, or get
// that of one of the address with the most: a kubelet's probe is not kept out.
const maxPages = 64

// placeListener gives each connection a place, until it is closed.
type placeListener struct {
	net.Listener
	places *admission.Admission
}

func newPlaceListener(l net.Listener) placeListener {
	p := placeListener{l, admission.New(maxPages, 0)}
	p.places.Patient = true
	return p
}

// Accept does not wait for a place.
func (l placeListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &placeConn{Conn: conn, cancel: cancel}
	c.enter = sync.OnceValues(func() (*admission.Place, error) {
		place, err := l.places.Enter(ctx, conn)
		if err == nil {
			place.Settle(false)
		}
		return place, err
	})
	return c, nil
}

type placeConn struct {
	net.Conn
	enter  func() (*admission.Place, error)
	cancel context.CancelFunc
}

// Read waits for a place the first time.
func (c *placeConn) Read(b []byte) (int, error) {
	place, err := c.enter()
	if err != nil {
		return 0, err
	}
	place.Wait()
	defer place.Compute()
	return c.Conn.Read(b)
}

func (c *placeConn) Write(b []byte) (int, error) {
	place, err := c.enter()
	if err != nil {
		return 0, err
	}
	place.Wait()
	defer place.Compute()
	place.Reach(admission.Greeting)
	return c.Conn.Write(b)
}

// Close ends the wait for a place, too.
func (c *placeConn) Close() error {
	c.cancel()
	if place, err := c.enter(); err == nil {
		place.Leave()
	}
	return c.Conn.Close()
}
