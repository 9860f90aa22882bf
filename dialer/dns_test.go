package dialer_test

import (
	"context"
	"net"

	"github.com/causewayproject/causeway/dialer"
)

// dnsThrough is Go's resolver, which asks the server at address through d.
func dnsThrough(d dialer.Dialer, address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", address)
	}}
}
