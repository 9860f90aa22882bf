package dialer_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/noproxy"
)

func ExampleChain() {
	corporate := &dialer.HTTPConnect{Addr: "proxy.example.com:3128", TLSConfig: &tls.Config{}}
	jump := &dialer.SOCKS5{Addr: "jump.example.net:1080"}
	d, err := dialer.Chain(corporate, jump)
	if err != nil {
		log.Fatal(err)
	}
	client := dialer.Transport(d)
	defer client.CloseIdleConnections()

	_, err = dialer.Chain(corporate, dialer.Direct{})
	fmt.Println(err)
	// Output: dialer: config: proxy 2 of 2: a dialer.Direct can't be put behind another Dialer: it has no method WithForward
}

func ExampleRouter() {
	d := &dialer.Router{
		NoProxy: noproxy.Parse(".svc,.cluster.local"),
		Default: &dialer.HTTPConnect{Addr: "proxy.example.com:3128"},
	}
	client := dialer.Transport(d)
	defer client.CloseIdleConnections()
}

func ExampleFailover() {
	// Nothing listens on port 1, and the second proxy has no address.
	d := &dialer.Failover{Dialers: []dialer.Dialer{
		&dialer.HTTPConnect{Addr: "127.0.0.1:1"},
		&dialer.HTTPConnect{},
	}}
	_, err := d.DialContext(context.Background(), "tcp", "10.0.0.1:6443")
	var failures dialer.Failures
	if errors.As(err, &failures) {
		for _, f := range failures {
			var e *dialer.Error
			if errors.As(f.Err, &e) {
				fmt.Println("member", f.Member, "failed in phase", e.Phase)
			}
		}
	}
	// Output:
	// member 0 failed in phase tcp
	// member 1 failed in phase config
}

// A proxy that could not reach the target is worth another try elsewhere if
// the proxies stand in different networks.
func ExampleFailover_retry() {
	d := &dialer.Failover{
		Dialers: []dialer.Dialer{
			&dialer.HTTPConnect{Addr: "proxy-a.example.com:3128"},
			&dialer.HTTPConnect{Addr: "proxy-b.example.com:3128"},
		},
		Hedge: 500 * time.Millisecond,
		Retry: func(err error) bool {
			var e *dialer.Error
			return dialer.ProxyFailed(err) || errors.As(err, &e) && e.Status >= 502 && e.Status <= 504
		},
	}
	client := dialer.Transport(d)
	defer client.CloseIdleConnections()
}

// Names are looked up in the cluster's DNS, which only the tunnel into the cluster
// reaches. Go's resolver asks over TCP if its Dial returns such a connection.
func ExampleResolve() {
	tunnel := &dialer.SOCKS5{Addr: "gateway.example.com:1080"} // or a tunnel.Dialer
	dns := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return tunnel.DialContext(ctx, "tcp", "10.96.0.10:53")
	}}
	client := dialer.Transport(&dialer.Resolve{Resolver: dns, Forward: tunnel})
	defer client.CloseIdleConnections()
}
