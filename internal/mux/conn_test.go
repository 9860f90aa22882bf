package mux_test

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/causewayproject/causeway/internal/mux"
)

func TestStreamIsConn(t *testing.T) {
	for _, carrier := range carriers {
		t.Run(carrier.name, func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				a, b := carrier.pair(t)
				client, server := mux.Client(a, nil), mux.Server(b, nil)
				opened, accepted := connect(t, client, server, "")
				return opened, accepted, func() {
					client.Close()
					server.Close()
				}, nil
			})
		})
	}
}
