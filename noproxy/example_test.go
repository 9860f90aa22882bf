package noproxy_test

import (
	"context"
	"fmt"
	"net"

	"github.com/causewayproject/causeway/noproxy"
)

func Example() {
	rules := noproxy.Parse("localhost,.svc,.cluster.local,10.96.0.0/12,api.example.com:6443")

	fmt.Println(rules.Bypass("kubernetes.default.svc", "443"))
	fmt.Println(rules.Bypass("10.96.0.1", "443"))
	fmt.Println(rules.Bypass("api.example.com", "6443"))
	fmt.Println(rules.Bypass("api.example.com", "443"))
	fmt.Println(rules.Bypass("registry.example.com", "443"))
	// Output:
	// true
	// true
	// true
	// false
	// false
}

// A dial function that goes around the proxy where the rules say so.
func ExampleRules_Bypass() {
	type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

	route := func(rules *noproxy.Rules, direct, proxy dialFunc) dialFunc {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err // not a reason to connect directly
			}
			if rules.Bypass(host, port) {
				return direct(ctx, network, address)
			}
			return proxy(ctx, network, address)
		}
	}

	dial := route(noproxy.Parse(".svc,2001:db8::/32"),
		func(_ context.Context, _, address string) (net.Conn, error) {
			fmt.Println("direct:", address)
			return nil, nil
		},
		func(_ context.Context, _, address string) (net.Conn, error) {
			fmt.Println("proxy: ", address)
			return nil, nil
		})
	for _, address := range []string{"etcd.kube-system.svc:2379", "[2001:db8::1]:443", "example.com:443"} {
		dial(context.Background(), "tcp", address)
	}
	// Output:
	// direct: etcd.kube-system.svc:2379
	// direct: [2001:db8::1]:443
	// proxy:  example.com:443
}

// A list that makes little sense is no error.
func ExampleParse() {
	rules := noproxy.Parse("https://example.com/, ,[2001:db8::1],example.net")

	fmt.Println(rules.Bypass("example.com", "443"))
	fmt.Println(rules.Bypass("2001:db8::1", "443")) // brackets need a port
	fmt.Println(rules.Bypass("example.net", "443"))
	// Output:
	// false
	// false
	// true
}
