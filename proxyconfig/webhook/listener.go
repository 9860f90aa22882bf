package webhook

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
)

// A placeListener accepts connections that have a place, and whose TLS handshake is over.
// All clients have places as those without an identity, because nearly none has one:
// package admission says who makes room for a new connection.
type placeListener struct {
	addr   net.Addr
	config *tls.Config
	logf   func(string, ...any)
	places *admission.Admission
	conns  chan net.Conn
	stop   context.CancelFunc
	ended  chan struct{} // closed when nothing is accepted any more
	err    error         // why; set before ended is closed
	wg     sync.WaitGroup
}

func newPlaceListener(l net.Listener, config *tls.Config, logf func(string, ...any)) *placeListener {
	config = admission.LimitMessages(config.Clone())
	config.NextProtos = nil // HTTP/2 has many requests in a connection, and API servers don't use it here
	ctx, stop := context.WithCancel(context.Background())
	p := &placeListener{addr: l.Addr(), config: config, logf: logf, places: admission.New(maxConnections, 0),
		conns: make(chan net.Conn), stop: stop, ended: make(chan struct{})}
	p.places.Patience = 250 * time.Millisecond
	p.wg.Go(func() {
		defer close(p.ended)
		if p.err = new(group.Set).Serve(ctx, l, 0, p.shakeHands); p.err == nil {
			p.err = net.ErrClosed
		}
	})
	return p
}

func (p *placeListener) shakeHands(g *group.Group, raw net.Conn) {
	ctx, cancel := context.WithTimeout(g.Context(), headerTimeout)
	defer cancel()
	place, err := p.places.Enter(ctx, raw)
	if err != nil {
		raw.Close()
		return
	}
	below := &admission.Conn{Conn: raw, Place: place}
	conn := &placeConn{Conn: tls.Server(below, p.config), raw: raw, place: place, inHead: true}
	place.Begin()
	// On a goroutine of its own, so that the large stack is freed.
	var wg sync.WaitGroup
	wg.Go(func() { err = conn.Conn.(*tls.Conn).HandshakeContext(ctx) })
	wg.Wait()
	if err != nil {
		place.Leave()
		raw.Close()
		p.logf("TLS handshake with %v: %v", raw.RemoteAddr(), err)
		return
	}
	place.Settle(p.config.ClientAuth == tls.RequireAndVerifyClientCert)
	select {
	case p.conns <- conn:
	case <-g.Context().Done():
		conn.Close()
	}
}

// Accept returns the next connection.
func (p *placeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ended:
		return nil, p.err
	}
}

// Close waits for the handshakes, which it ends.
func (p *placeListener) Close() error {
	p.stop()
	p.wg.Wait()
	return nil
}

func (p *placeListener) Addr() net.Addr { return p.addr }

// A placeConn has a place until it is closed. It is no *tls.Conn for net/http.
type placeConn struct {
	net.Conn // TLS
	raw      net.Conn
	place    *admission.Place
	// The server's goroutine uses these.
	inHead        bool
	lines, column int
}

// track is the ConnState of the server.
func (c *placeConn) track(state http.ConnState) {
	if state == http.StateIdle { // the next header comes
		c.inHead, c.lines, c.column = true, 0, 0
	}
}

// Read counts the lines of a header while net/http keeps them.
func (c *placeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for i := 0; i < n && c.inHead; i++ {
		switch b[i] {
		case '\r':
		case '\n':
			c.lines++
			if c.lines > maxLines {
				return 0, errLines
			}
			c.inHead, c.column = c.column > 0, 0
		default:
			c.column++
		}
	}
	return n, err
}

// CloseWrite says goodbye, while the connection has its place.
func (c *placeConn) CloseWrite() error { return c.Conn.(*tls.Conn).CloseWrite() }

// Close does not say goodbye: that would wait for a client that does not read.
func (c *placeConn) Close() error {
	c.place.Leave()
	return c.raw.Close()
}
