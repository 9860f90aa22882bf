package gateway_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// moreDoors are those beside CONNECT.
func moreDoors() []door {
	socks := (*gateway.Gateway).ServeSOCKS5
	return []door{
		{name: "socks5", serve: socks, codes: codesSOCKS5, client: socksClient(nil)},
		{name: "socks5, unix", serve: socks, codes: codesSOCKS5, client: socksClient(nil), unix: true},
		{name: "socks5, TLS", serve: socks, codes: codesSOCKS5, client: socksClient(clientTLS()), tls: true},
	}
}

func socksClient(config *tls.Config) func(testing.TB, net.Addr, string, string) dialer.Dialer {
	return func(_ testing.TB, addr net.Addr, user, password string) dialer.Dialer {
		d := &dialer.SOCKS5{Addr: proxyAddr(addr)}
		if user != "" {
			d.Credentials = dialer.Password(user, password)
		}
		if config != nil {
			d.Forward = dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
				return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
			})
		}
		return d
	}
}
