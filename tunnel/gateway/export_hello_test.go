package gateway

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/causewayproject/causeway/internal/group"
)

// ReadHello is what the SNI door does with what a client says first. alert is
// what it would answer to a ClientHello that is none.
func ReadHello(r io.Reader, max int) (raw []byte, name string, alert byte, err error) {
	raw, name, err = readHello(readerConn{Reader: r}, max)
	var bad *helloError
	if errors.As(err, &bad) {
		alert = bad.alert
	}
	return raw, name, alert, err
}

// readerConn is a connection that only reads.
type readerConn struct {
	net.Conn
	io.Reader
}

func (c readerConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// HandleSOCKS5 serves one connection.
func (g *Gateway) HandleSOCKS5(conn net.Conn) error {
	if err := g.checkFields(); err != nil {
		return err
	}
	gr := group.New(context.Background())
	defer gr.Cancel()
	defer conn.Close()
	g.serveClient(&socks5Protocol, gr, conn)
	return nil
}
