package connect_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// network is hosts that can be changed, and notes what was dialed.
type network struct {
	mu     sync.Mutex
	hosts  map[string]string // listeners by address; "" refuses
	dialed []string
}

func (n *network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	to := n.hosts[address]
	n.dialed = append(n.dialed, address)
	n.mu.Unlock()
	if to == "" {
		to = "127.0.0.1:1" // nobody
	}
	return dialer.Direct{}.DialContext(ctx, network, to)
}

func (n *network) set(address, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[address] = to
}

// asked returns what was dialed since the last time.
func (n *network) asked() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	dialed := n.dialed
	n.dialed = nil
	return dialed
}

// faulty is a listener whose connections handle ends, or nobody until the
// test's end.
func faulty(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		var conns []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			conns = append(conns, conn)
			handle(conn)
		}
		for _, conn := range conns {
			conn.Close()
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

var moreEndpoints = []kubeconfig.Endpoint{{Host: "api2.test", Port: 6443}, {Host: "api3.test", Port: 6443}}

// The endpoints are tried in their order, by every kind of route.
func TestEndpoints(t *testing.T) {
	silent := func(t *testing.T) string { return faulty(t, func(net.Conn) {}) }
	hangUp := func(t *testing.T) string { return faulty(t, func(conn net.Conn) { conn.Close() }) }
	plain := func(t *testing.T) string {
		return faulty(t, func(conn net.Conn) { io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\n\r\n") })
	}
	refused := func(*testing.T) string { return "" }
	works := func(_ *testing.T) string { return "works" }
	for _, test := range []struct {
		name  string
		hosts [3]func(*testing.T) string
		want  []string // what is dialed
	}{
		{"all work", [3]func(*testing.T) string{works, works, works}, []string{apiAddress}},
		{"the first is down", [3]func(*testing.T) string{refused, works, works}, []string{apiAddress, "api2.test:6443"}},
		{"two are down", [3]func(*testing.T) string{refused, refused, works}, []string{apiAddress, "api2.test:6443", "api3.test:6443"}},
		{"the first accepts and is silent", [3]func(*testing.T) string{silent, works, works}, []string{apiAddress, "api2.test:6443"}},
		{"the first accepts and hangs up", [3]func(*testing.T) string{hangUp, works, works}, []string{apiAddress, "api2.test:6443"}},
		{"the first speaks no TLS", [3]func(*testing.T) string{plain, works, works}, []string{apiAddress, "api2.test:6443"}},
	} {
		for route, serve := range map[string]func(*proxy) proxyFunc{"direct": nil, "http": serveConnect, "socks5": serveSOCKS} {
			t.Run(test.name+"/"+route, func(t *testing.T) {
				t.Parallel()
				api := newAPIServer(t)
				n := &network{hosts: map[string]string{}}
				for i, address := range []string{apiAddress, "api2.test:6443", "api3.test:6443"} {
					n.hosts[address] = test.hosts[i](t)
					if n.hosts[address] == "works" {
						n.hosts[address] = api.addr()
					}
				}
				spec, opts := kubetest.Spec(api.ca), &connect.Options{Forward: n}
				spec.MoreEndpoints = moreEndpoints
				if serve != nil {
					p := newProxyOver(t, n.DialContext, serve)
					spec.Route.ProxyURL = p.url(route)
					opts = nil
				}
				config, err := spec.Build()
				if err != nil {
					t.Fatal(err)
				}
				c := kubetest.NewClient(t, config, opts)
				if err := namespaces(c.Config()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, n.asked()); diff != "" {
					t.Errorf("what was dialed (-want +got):\n%s", diff)
				}
				if got := api.protos["HTTP/2.0"]; got != 1 {
					t.Errorf("got %d requests by HTTP/2, want 1", got)
				}
				// Without the transport: what worked for it comes first.
				newKubelet(t, api)
				if err := runCommand(t.Context(), t, c, "true", io.Discard); err != nil {
					t.Errorf("exec: %v", err)
				}
				if diff := cmp.Diff(test.want[len(test.want)-1:], n.asked()); diff != "" {
					t.Errorf("what was dialed for exec (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// newProxyOver is a proxy that dials with dial.
func newProxyOver(t *testing.T, dial func(context.Context, string, string) (net.Conn, error), serve func(*proxy) proxyFunc) *proxy {
	t.Helper()
	return newProxy(t, &apiServer{route: dial}, nil, nil, serve)
}

// An endpoint that comes back is used again.
func TestEndpointComesBack(t *testing.T) {
	api := newAPIServer(t)
	n := &network{hosts: map[string]string{"api2.test:6443": api.addr()}}
	spec := kubetest.Spec(api.ca)
	spec.MoreEndpoints = moreEndpoints[:1]
	config, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	c := kubetest.NewClient(t, config, &connect.Options{Forward: n})
	for _, step := range []struct {
		what, one, two string
		want           []string
	}{
		{"down", "", api.addr(), []string{apiAddress, "api2.test:6443"}},
		{"down for some time: it is not asked first", "", api.addr(), []string{"api2.test:6443"}},
		{"up, and the other is down", api.addr(), "", []string{"api2.test:6443", apiAddress}},
		{"up", api.addr(), api.addr(), []string{apiAddress}},
	} {
		n.set(apiAddress, step.one)
		n.set("api2.test:6443", step.two)
		if err := namespaces(c.Config()); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if diff := cmp.Diff(step.want, n.asked()); diff != "" {
			t.Errorf("%s: what was dialed (-want +got):\n%s", step.what, diff)
		}
		c.HTTP().CloseIdleConnections()
		<-api.closed
	}
}

// Whoever answers at an endpoint is verified as the server is.
func TestEndpointVerification(t *testing.T) {
	api, stranger := newAPIServer(t), newAPIServer(t)
	n := &network{hosts: map[string]string{"api2.test:6443": stranger.addr()}}
	spec := kubetest.Spec(api.ca)
	spec.MoreEndpoints = moreEndpoints[:1]
	config, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	err = namespaces(kubetest.NewClient(t, config, &connect.Options{Forward: n}).Config())
	var cert *tls.CertificateVerificationError
	var failures dialer.Failures
	if !errors.As(err, &cert) || !errors.As(err, &failures) || len(failures) != 2 {
		t.Errorf("got %v, want two failures, one of them a certificate", err)
	}
	if got := stranger.lastClient(); got != "(no request)" {
		t.Errorf("the stranger got a request of %q", got)
	}
}

// What the proxy says of us, it would say again.
func TestEndpointsProxyRefuses(t *testing.T) {
	api := newAPIServer(t)
	for _, test := range []struct {
		name  string
		proxy func(t *testing.T, n *network) string
	}{
		{"password", func(t *testing.T, n *network) string {
			return newProxyOver(t, n.DialContext, func(*proxy) proxyFunc { return refuse }).url("http")
		}},
		{"down", func(*testing.T, *network) string { return kubetest.DeadProxy }},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := &network{hosts: map[string]string{}}
			spec := kubetest.Spec(api.ca)
			spec.MoreEndpoints, spec.Route.ProxyURL = moreEndpoints, test.proxy(t, n)
			config, err := spec.Build()
			if err != nil {
				t.Fatal(err)
			}
			err = namespaces(kubetest.NewClient(t, config, nil).Config())
			var failures dialer.Failures
			if !errors.As(err, &failures) || len(failures) != 1 {
				t.Errorf("got %v, want one failure", err)
			}
		})
	}
}

// refuse answers each request with 407.
func refuse(_ context.Context, conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, 4096)
	for {
		if _, err := conn.Read(buf); err != nil {
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 %d Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", http.StatusProxyAuthRequired)
	}
}
