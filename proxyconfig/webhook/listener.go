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

// newPlaceListener returns a listener of connections that have a place, and whose TLS
// handshake is over. All clients have places as those without an identity, because nearly
// none has one: package admission says who makes room for a new connection.
func newPlaceListener(l net.Listener, config *tls.Config, logf func(string, ...any)) net.Listener {
	config = admission.LimitMessages(config.Clone())
	config.NextProtos = nil // HTTP/2 has many requests in a connection, and API servers don't use it here
	places := admission.New(maxConnections, 0)
	places.Patience = 250 * time.Millisecond
	return group.NewListener(l, func(ctx context.Context, raw net.Conn) net.Conn {
		ctx, cancel := context.WithTimeout(ctx, headerTimeout)
		defer cancel()
		place, err := places.Enter(ctx, raw)
		if err != nil {
			raw.Close()
			return nil
		}
		conn := &placeConn{Conn: tls.Server(&admission.Conn{Conn: raw, Place: place}, config), raw: raw, place: place, inHead: true}
		place.Begin()
		// On a goroutine of its own, so that the large stack is freed.
		var wg sync.WaitGroup
		wg.Go(func() { err = conn.Conn.(*tls.Conn).HandshakeContext(ctx) })
		wg.Wait()
		if err != nil {
			conn.Close()
			logf("TLS handshake with %v: %v", raw.RemoteAddr(), err)
			return nil
		}
		place.Settle(config.ClientAuth == tls.RequireAndVerifyClientCert)
		return conn
	})
}

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
