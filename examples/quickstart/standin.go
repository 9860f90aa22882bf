package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/test/apitest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// standInHost is an address for documentation (RFC 5737): nobody has it. The
// proxies below connect it to the stand-in.
const (
	standInHost = "192.0.2.10"
	standInPort = 6443
)

// A password with all that gets lost in URLs and headers.
const username, password = "controller", "p@ss:w/rd%+&'"

// next is what to try after the stand-ins.
const next = `Try next:
  causeway doctor --kubeconfig FILE   a cluster and a proxy of yours: what stops a connection, and the remedy
  docs/tunnel.md                      a tunnel to a cluster that nothing leads into
  README.md                           which package you need
`

// startDemo starts a stand-in for an API server, and the proxies and the tunnel
// in front of it.
func (s *starter) startDemo() *demo {
	ca := pki.NewCA("kubernetes")
	api := s.serveAPI(ca)
	return &demo{
		spec: kubeconfig.Spec{
			Name:     "quickstart",
			Endpoint: kubeconfig.Endpoint{Host: standInHost, Port: standInPort},
			CA:       ca.CertPEM(),
			// The endpoint is not in the certificate, as with many a load
			// balancer; this name always is.
			TLSServerName: "kubernetes.default.svc",
			Credentials:   kubeconfig.Credentials{CAKey: ca.KeyPEM()},
		},
		routes: append(s.serveProxies(api), route{name: "TUNNEL", route: s.serveTunnel(api)}),
	}
}

// starter starts servers. After the first error it starts no more.
type starter struct {
	err   error
	stops []func()
}

// stop ends the servers, the last one first.
func (s *starter) stop() {
	for _, stop := range slices.Backward(s.stops) {
		stop()
	}
}

// serve runs a server on a port of its own until stop, and returns its address.
// run returns once ctx has ended.
func (s *starter) serve(run func(ctx context.Context, l net.Listener)) (address string) {
	if s.err != nil {
		return ""
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil { // a host without IPv4
		l, err = net.Listen("tcp", "[::1]:0")
	}
	if s.err = err; err != nil {
		return ""
	}
	s.start(func(ctx context.Context) { run(ctx, l) })
	return l.Addr().String()
}

// start runs something until stop, which waits for it.
func (s *starter) start(run func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	s.stops = append(s.stops, func() {
		cancel()
		running.Wait()
	})
}

// serveProxies starts an HTTP, an HTTPS and a SOCKS5 proxy that reach the API
// server at api, and nothing else, and returns the routes through them.
func (s *starter) serveProxies(api string) []route {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != fmt.Sprintf("%s:%d", standInHost, standInPort) {
			return nil, fmt.Errorf("no route to %s", address)
		}
		return new(net.Dialer).DialContext(ctx, network, api)
	}
	ca := pki.NewCA("corporate proxy")
	certificate := &tls.Config{Certificates: []tls.Certificate{ca.Server("127.0.0.1", "::1")}}
	through := func(scheme string, handle func(context.Context, net.Conn)) kubeconfig.Route {
		address := s.serve(func(ctx context.Context, l net.Listener) {
			if scheme == "https" {
				l = tls.NewListener(l, certificate)
			}
			proxy := proxytest.Serve(l, handle)
			<-ctx.Done()
			proxy.Close()
		})
		u := url.URL{Scheme: scheme, User: url.UserPassword(username, password), Host: address}
		return kubeconfig.Route{ProxyURL: u.String()}
	}
	http := &proxytest.HTTP{Username: username, Password: password, Dial: dial}
	socks := &proxytest.SOCKS5{Username: username, Password: password, Dial: dial}
	return []route{
		{"HTTP proxy", through("http", http.Handle), nil},
		{"HTTPS proxy", through("https", http.Handle), &connect.Options{ProxyTLS: &tls.Config{RootCAs: ca.Pool()}}},
		{"SOCKS5 proxy", through("socks5", socks.Handle), nil},
	}
}

// serveAPI starts the stand-in, which wants a client certificate of ca.
func (s *starter) serveAPI(ca *pki.CA) (address string) {
	objects := apitest.NewHandler()
	for _, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
		objects.Set("namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	}
	mux := http.NewServeMux()
	mux.Handle("/", objects)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"major": "1", "minor": "36", "gitVersion": "v1.36.0-stand-in"}`)
	})
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{ca.Server("kubernetes.default.svc")},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    ca.Pool(),
			NextProtos:   []string{"h2", "http/1.1"},
		},
	}
	return s.serve(func(ctx context.Context, l net.Listener) {
		defer context.AfterFunc(ctx, func() { server.Close() })()
		server.ServeTLS(l, "", "")
	})
}
