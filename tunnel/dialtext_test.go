package tunnel_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/causewayproject/causeway/tunnel"
)

type noNames struct{}

func (noNames) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.99.0.10:53", IsNotFound: true}
}

// What the agent saw reaches who dials, but for the addresses of its network.
func TestDialErrorText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, &tunnel.Server{})
		b.agent(&tunnel.Agent{Targets: tunnel.Targets{Allow: []string{"*:443"}, Resolver: noNames{}}})
		_, err := b.dial("api.example:443")
		if codeOf(err) != tunnel.CodeNotFound || !strings.Contains(err.Error(), "no such host") || strings.Contains(err.Error(), "10.99") {
			t.Errorf("got %v, want what the resolver said, and not which it is", err)
		}
	})
}
