package gateway

import (
	"context"
	"errors"
	"math"
	"net"

	"github.com/causewayproject/causeway/internal/admission"
	"github.com/causewayproject/causeway/internal/group"
)

// sni serves one connection.
func (g *Gateway) sni(gr *group.Group, conn net.Conn) { g.speak(&speaksTLS, gr, conn) }

var speaksTLS = protocol{door: DoorSNI, hear: hearHello, sorry: alertTo}

// hearHello reads the ClientHello and lets the client in by its name.
func hearHello(ctx context.Context, c *caller) (early []byte, err error) {
	var h hello
	most := orDefault(c.g.MaxHeader, 64<<10)
	c.place.Begin()
	c.place.Limit(math.MaxInt) // read counts itself
	name, err := h.read(&placed{Conn: c.raw, place: c.place}, most)
	c.place.End(0)
	if err != nil {
		return nil, err
	}
	c.beginAsking()
	defer c.endAsking(admission.Greeting)
	return h.raw, c.v.admit(ctx, Credentials{Door: DoorSNI, ServerName: name, Remote: c.raw.RemoteAddr()})
}

// alertRecord is a fatal alert before a version was agreed on: clients of TLS
// 1.0 to 1.3 read it.
func alertRecord(alert byte) string {
	const recordAlert, fatal = 21, 2
	return string([]byte{recordAlert, 3, 3, 0, 2, fatal, alert})
}

// notHTTPS is for who speaks HTTP to a port for HTTPS.
const notHTTPS = "HTTP/1.1 400 Bad Request: this port speaks TLS\r\n" +
	"Content-Type: text/plain\r\nContent-Length: 26\r\nConnection: close\r\n\r\nUse an https URL instead.\n"

// alertTo is the last word to a client for an error.
func alertTo(err error) string {
	var (
		bad *badHello
		e   *Error
	)
	switch {
	case err == errHTTP:
		return notHTTPS
	case errors.As(err, &bad):
		return alertRecord(bad.alert)
	case err == errShutdown:
		return alertRecord(alertInternalError)
	case !errors.As(err, &e):
		return "" // nothing was said, or not all
	}
	switch r := reasonOf(e.Err); {
	case e.Phase == PhaseAuthenticate, r == reasonForbidden:
		return alertRecord(alertAccessDenied)
	case e.Phase == PhaseRoute && r == reasonFailed:
		return alertRecord(alertUnrecognizedName)
	}
	return alertRecord(alertInternalError)
}
