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

func ExampleOptions_Parse() {
	_, err := noproxy.Options{Strict: true}.Parse("example.com,10.0.0.0/33,*.svc,[2001:db8::1]")
	fmt.Println(err)
	// Output:
	// noproxy: entry 1 "10.0.0.0/33": not a network; write an address, a slash and a length that fits it
	// noproxy: entry 3 "[2001:db8::1]": brackets need a port; write the address without them
}

func ExampleRules_Explain() {
	rules := noproxy.Parse(".svc,10.96.0.0/12,example.com:8443")
	fmt.Println(rules.Explain("10.96.0.1", "443"))
	fmt.Println(rules.Explain("example.com", "443"))
	fmt.Println(rules.Explain("127.0.0.1", "443"))
	// Output:
	// 10.96.0.1:443: direct: entry 1 "10.96.0.0/12": an address of the network
	// example.com:443: through the proxy: no entry covers it; entry 2 "example.com:8443" is for port 8443 only
	// 127.0.0.1:443: direct: localhost and loopback addresses are never proxied
}

// One list, and who connects directly to the name itself.
func ExampleConsumer_Bypass() {
	for _, c := range noproxy.Consumers() {
		fmt.Println(c, c.Bypass(".example.com", "example.com", "https"))
	}
	// Output:
	// go false
	// curl true
	// wget false
	// urllib true
	// requests true
	// ruby false
	// undici true
	// jvm false
}

func ExampleLint() {
	for _, f := range noproxy.Lint("*.example.com,10.0.0.0/8", noproxy.Ruby, noproxy.JVM) {
		fmt.Println(f)
	}
	// Output:
	// ruby: entry 0 "*.example.com": sends https://www.example.com/ through the proxy, where Go connects directly; write ".example.com" for it
	// jvm: entry 1 "10.0.0.0/8": sends https://10.0.0.0/ through the proxy, where Go connects directly; write "10.*" for it, which also covers names that begin with the same numbers
}

func ExampleCluster_List() {
	list, err := noproxy.Cluster{
		PodCIDRs:          []string{"10.244.0.0/16"},
		ServiceCIDRs:      []string{"10.96.0.0/12"},
		ControlPlaneHosts: []string{"api.example.com"},
	}.List()
	if err != nil {
		fmt.Println(err)
		return
	}
	list = noproxy.Merge(list, noproxy.ParseList("10.96.1.0/24,corp.example", "installation"))
	fmt.Println(list)
	for _, e := range list[len(list)-2:] {
		fmt.Printf("%s is from the %s, within %q\n", e.Text, e.From, e.Within)
	}
	// Output:
	// localhost,127.0.0.1,svc,cluster.local,cluster.local.,kubernetes,kubernetes.default,10.96.0.0/12,10.244.0.0/16,api.example.com,corp.example
	// 10.96.1.0/24 is from the installation, within "10.96.0.0/12"
	// corp.example is from the installation, within ""
}

func ExampleList_JVM() {
	value, findings := noproxy.ParseList("localhost,.svc,10.0.0.0/8", "flag").JVM()
	fmt.Println(value)
	for _, f := range findings {
		fmt.Println(f)
	}
	// Output:
	// localhost|*.localhost|*.svc|10.*
	// jvm: entry 2 "10.0.0.0/8": is given "10.*", which also covers names that begin with the same numbers; write the addresses one by one if such names must use the proxy
}
