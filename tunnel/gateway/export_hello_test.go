package gateway

import (
	"errors"
	"io"
	"net"

	"github.com/causewayproject/causeway/internal/group"
)

// ReadHello is what the SNI door does with what a client says first. alert is
// what it would answer to a ClientHello that is none.
func ReadHello(r io.Reader, most int) (raw []byte, name string, alert byte, err error) {
	var h hello
	name, err = h.read(r, most)
	var bad *badHello
	if errors.As(err, &bad) {
		alert = bad.alert
	}
	return h.raw, name, alert, err
}

// HandleSOCKS5 serves one connection.
func (g *Gateway) HandleSOCKS5(conn net.Conn) error {
	if err := g.setup(); err != nil {
		return err
	}
	return g.set.Join(func(gr *group.Group) {
		defer conn.Close()
		g.socks5(gr, conn)
	})
}
