package tunnel_test

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/causewayproject/causeway/tunnel"
)

// What a dial returns is a net.Conn, with an agent and a TCP connection between
// its two ends.
func TestConn(t *testing.T) {
	for _, kind := range carrierKinds {
		t.Run(kind.name, func(t *testing.T) {
			target, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer target.Close()
			b, address := kind.bed(t, &tunnel.Server{})
			b.agent(&tunnel.Agent{Servers: []string{address}, Targets: tunnel.Targets{Allow: []string{target.Addr().String()}}})
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				if c1, err = b.dial(target.Addr().String()); err != nil {
					return nil, nil, nil, err
				}
				if c2, err = target.Accept(); err != nil {
					return nil, nil, nil, err
				}
				return c1, c2, func() {
					c1.Close()
					c2.Close()
				}, nil
			})
		})
	}
}

// The addresses of a connection say cluster and target.
func TestConnAddrs(t *testing.T) {
	b := newBed(t, &tunnel.Server{})
	b.agent(&tunnel.Agent{})
	conn := b.echo()
	defer conn.Close()
	if got, want := conn.LocalAddr(), (tunnel.Addr{Cluster: testCluster}); got != want {
		t.Errorf("LocalAddr: got %v, want %v", got, want)
	}
	agent := b.s.Status().Clusters[0].Sessions[0].Agent
	if got, want := conn.RemoteAddr(), (tunnel.Addr{Cluster: testCluster, Target: "echo:7", Agent: agent}); got != want {
		t.Errorf("RemoteAddr: got %v, want %v", got, want)
	}
	if got, want := conn.RemoteAddr().String(), testCluster+"|echo:7"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
