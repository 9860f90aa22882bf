package e2e

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// A door is a column of the matrix.
type door struct {
	name, id string
	proxy    *url.URL             // nil for SNI
	sni      string               // host:port
	h2       bool                 // a client must speak HTTP/2
	cannot   map[string]inability // by program
}

// inability is what a program says of a door that it can't use, in words that do
// not change from run to run.
type inability struct{ who, says string }

var (
	noUnix    = inability{"client-go", `unsupported scheme "http+unix", must be http, https, or socks5`}
	noHTTPS   = inability{"ncat", `Invalid proxy type "https"`}
	noTLSHere = inability{"ssh", "kex_exchange_identification: Connection closed by remote host"}

	cannotTLS  = map[string]inability{"ncat": noHTTPS}
	cannotH2   = map[string]inability{"ncat": noHTTPS, "curl": {"curl 7.88", "option --proxy-http2: is unknown"}}
	cannotSNI  = map[string]inability{"ncat": noTLSHere, "dialer": noTLSHere}
	cannotUnix = map[string]inability{
		"kubectl":   noUnix,
		"client-go": noUnix,
		"curl":      {"curl", "Unsupported proxy syntax"},
		"ncat":      {"ncat", "Could not resolve proxy"},
	}
)

// password is what clients show; the user is the cluster.
const password = "p@ss:word"

// startDoors starts a tunnel and a gateway in front of it, until the test ends.
func startDoors(t *testing.T, b *bed.Bed) []*door {
	t.Helper()
	h := gatewayTunnel(t, b)
	cert := b.Kube.CA.Server("gateway", "127.0.0.1") // kubectl trusts a proxy as it does the API server
	plain := h.gateway(nil)
	http1 := h.gateway(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}})
	h2 := h.gateway(&tls.Config{Certificates: []tls.Certificate{cert}})
	sni := h.gateway(nil)
	names := new(gateway.Table)
	names.Set(map[string]gateway.Place{bed.SNIName: {Cluster: cluster, Address: apiTarget}})
	sni.Authenticate, sni.Route = gateway.Anyone, gateway.ByTable(names)
	connect, socks5 := (*gateway.Gateway).ServeConnect, (*gateway.Gateway).ServeSOCKS5
	socket := filepath.Join(b.Dir, "gateway.sock")
	return []*door{
		{name: "CONNECT", id: "connect", proxy: h.serve(plain, connect, loopback(t, b), "http")},
		{name: "CONNECT, TLS", id: "tls", proxy: h.serve(http1, connect, loopback(t, b), "https"), cannot: cannotTLS},
		{name: "CONNECT, HTTP/2", id: "h2", proxy: h.serve(h2, connect, loopback(t, b), "https"), h2: true, cannot: cannotH2},
		{name: "CONNECT, unix socket", id: "unix", proxy: h.serve(plain, connect, listenUnix(t, socket), "http+unix"), cannot: cannotUnix},
		{name: "SOCKS5", id: "socks5", proxy: h.serve(plain, socks5, loopback(t, b), "socks5")},
		{name: "SNI", id: "sni", sni: h.serve(sni, (*gateway.Gateway).ServeSNI, loopback(t, b), "").Host, cannot: cannotSNI},
	}
}

// gatewayTunnel is kubeTunnel, and the sshd beside the API server can be
// reached too.
func gatewayTunnel(t *testing.T, b *bed.Bed) *hub {
	t.Helper()
	address := net.JoinHostPort(bed.HubIP, tunnelPort)
	h := newHub(t, &tunnel.Server{}, listen(t, b.Network.Hub, address))
	startAgent(t, b.Network.API, agentInput{
		Invitation: h.invite(address),
		Proxy:      []hop{{URL: b.Office.URL().String()}},
		Allow:      []string{b.SSH.Address()},
		Aliases:    map[string]string{apiTarget: b.Kube.Address()},
	})
	h.session(20 * time.Second)
	return h
}

// gateway returns a gateway in front of the tunnel.
func (h *hub) gateway(config *tls.Config) *gateway.Gateway {
	return &gateway.Gateway{
		Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
			return h.Dialer(r.Cluster).DialContext(ctx, "tcp", r.Address)
		},
		Authenticate: authenticate,
		Route:        gateway.ByUser,
		TLS:          config,
		Grace:        -1,
	}
}

// serve serves the listener until the test ends, and returns the URL of the
// proxy that it is.
func (h *hub) serve(g *gateway.Gateway, serve func(*gateway.Gateway, context.Context, net.Listener) error, l net.Listener, scheme string) *url.URL {
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := serve(g, ctx, l); err != nil {
			h.t.Errorf("the door %s: %v", scheme, err)
		}
	})
	h.t.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	u := &url.URL{Scheme: scheme, Host: l.Addr().String(), User: url.UserPassword(cluster, password)}
	if l.Addr().Network() == "unix" {
		u.Host, u.Path = "", l.Addr().String()
	}
	return u
}

func authenticate(_ context.Context, c gateway.Credentials) (gateway.Identity, error) {
	if c.User != cluster || c.Password != password {
		return gateway.Identity{}, gateway.ErrCredentials
	}
	return gateway.Identity{Name: c.User, Cluster: c.User}, nil
}

func loopback(t *testing.T, b *bed.Bed) net.Listener {
	t.Helper()
	return listen(t, b.Network.Hub, "127.0.0.1:0")
}

func listenUnix(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// kubeconfig leads to the API server by the door.
func (d *door) kubeconfig(t *testing.T, b *bed.Bed) []byte {
	t.Helper()
	spec := kubeconfig.Spec{
		Name:        "bed",
		Endpoint:    kubeconfig.Endpoint{Host: "kubernetes.default.svc", Port: 443},
		CA:          b.Kube.CA.CertPEM(),
		Credentials: kubeconfig.Credentials{CAKey: b.Kube.CA.KeyPEM()},
	}
	if d.proxy == nil {
		host, text, _ := net.SplitHostPort(d.sni)
		port, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		spec.Endpoint, spec.TLSServerName = kubeconfig.Endpoint{Host: host, Port: int32(port)}, bed.SNIName
	}
	config, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	if d.proxy != nil {
		// Not by Spec.Route, which takes no URL that kubectl doesn't.
		config.Clusters["bed"].ProxyURL = d.proxy.String()
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
