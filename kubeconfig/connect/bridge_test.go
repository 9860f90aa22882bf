package connect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// overDialer is a Client by whose dialer alone the API server is reached.
func overDialer(t *testing.T, api *apiServer) *connect.Client {
	t.Helper()
	return kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Dialer: api.dialer()})
}

func subresource(t *testing.T, config *rest.Config, name string) *url.URL {
	t.Helper()
	core, err := coreclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	r := core.RESTClient().Post().Resource("pods").Namespace("default").Name("etcd-0").SubResource(name)
	if name == "exec" {
		r.Param("command", "cat").Param("stdin", "true").Param("stdout", "true")
	}
	return r.URL()
}

// checkCat runs cat in a Pod.
func checkCat(t *testing.T, e remotecommand.Executor, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out})
	if err != nil || out.String() != "hello" {
		t.Errorf("got %q, %v", &out, err)
	}
}

// checkForward sends something through client-go's port-forwarder.
func checkForward(t *testing.T, d httpstream.Dialer) {
	t.Helper()
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	f, err := portforward.NewOnAddresses(d, []string{"127.0.0.1"}, []string{"0:7"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- f.ForwardPorts() }()
	select {
	case err := <-ended:
		t.Fatal(err)
	case <-ready:
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	conn.Close()
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// checkEtcd dials as Cluster API's kubeadm control plane dials etcd: a timeout
// on the HTTP client, and streams of its own.
func checkEtcd(t *testing.T, config *rest.Config) {
	t.Helper()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	conn, _, err := spdy.NewDialer(upgrader, client, http.MethodPost, subresource(t, config, "portforward")).Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	header := http.Header{}
	header.Set(corev1.PortHeader, "7")
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	var streams []httpstream.Stream
	for _, kind := range []string{corev1.StreamTypeError, corev1.StreamTypeData} {
		header.Set(corev1.StreamType, kind)
		s, err := conn.CreateStream(header)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	fmt.Fprint(streams[1], "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(streams[1], got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

// client-go's own exec and port-forward take the route, with nothing but the
// rest.Config.
func TestBridgeServesClientGo(t *testing.T) {
	tests := map[string]func(*testing.T, *rest.Config){
		"exec/spdy": func(t *testing.T, config *rest.Config) {
			e, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, subresource(t, config, "exec"))
			checkCat(t, e, err)
		},
		"exec/websocket": func(t *testing.T, config *rest.Config) {
			e, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, subresource(t, config, "exec").String())
			checkCat(t, e, err)
		},
		"port-forward/spdy": func(t *testing.T, config *rest.Config) {
			transport, upgrader, err := spdy.RoundTripperFor(config)
			if err != nil {
				t.Fatal(err)
			}
			checkForward(t, spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, subresource(t, config, "portforward")))
		},
		"port-forward/websocket": func(t *testing.T, config *rest.Config) {
			d, err := portforward.NewSPDYOverWebsocketDialer(subresource(t, config, "portforward"), config)
			if err != nil {
				t.Fatal(err)
			}
			checkForward(t, d)
		},
		"etcd": checkEtcd,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer(t)
			newKubelet(t, api)
			c := overDialer(t, api)
			config := c.Config()
			config.UserAgent = "controller"
			config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return rt })
			test(t, rest.CopyConfig(config))
			if got := api.lastClient(); got != "kubernetes-admin" {
				t.Errorf("the API server saw the certificate of %q", got)
			}
			if err := namespaces(config); err != nil { // plain requests as ever
				t.Error(err)
			}
			if got := api.lastHeader().Get("User-Agent"); got != "controller" {
				t.Errorf("User-Agent: got %q", got)
			}
		})
	}
}

// The bridge verifies nothing and sees nothing: the API server's certificate is
// for the client to look at.
func TestBridgeServerVerification(t *testing.T) {
	api := newAPIServer(t)
	newKubelet(t, api)
	config := build(t, api, kubeconfig.Route{})
	config.Clusters["c1"].CertificateAuthorityData = pki.NewCAWith(nil, nil).CertPEM()
	c := kubetest.NewClient(t, config, &connect.Options{Dialer: api.dialer()})
	if err := runCommand(t.Context(), t, c, "true", io.Discard); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("another CA: got %v", err)
	}
	without := overDialer(t, api).Config()
	without.TLSClientConfig = rest.TLSClientConfig{}
	e, err := remotecommand.NewSPDYExecutor(without, http.MethodPost, subresource(t, without, "exec"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{}); err == nil || !strings.Contains(err.Error(), "ServerName") {
		t.Errorf("without a server name: got %v", err)
	}
}

// through connects to address by the bridge.
func through(bridge *url.URL, address string) error {
	d, err := dialer.FromURL(bridge, nil)
	if err != nil {
		return err
	}
	conn, err := d.DialContext(context.Background(), "tcp", address)
	if err == nil {
		conn.Close()
	}
	return err
}

// bridgeOf returns the URL that client-go is given, and starts the bridge.
func bridgeOf(c *connect.Client) (*url.URL, error) { return c.Config().Proxy(nil) }

func TestBridge(t *testing.T) {
	api := newAPIServer(t)
	var mu sync.Mutex
	dialed := map[string]int{}
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{
		Dialer: dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dialed[address]++
			return api.dial(ctx, network, address)
		}),
	})
	bridge, err := bridgeOf(c)
	if err != nil {
		t.Fatal(err)
	}
	if ip := net.ParseIP(bridge.Hostname()); !ip.IsLoopback() || bridge.Scheme != "http" {
		t.Errorf("got %s, want one on loopback", bridge.Redacted())
	}
	password, _ := bridge.User.Password()
	if again, err := bridgeOf(c); err != nil || *again.User != *bridge.User || again.Host != bridge.Host {
		t.Errorf("the second URL is %v, %v", again, err)
	}
	for _, test := range []struct {
		name, address string
		user          *url.Userinfo
		status        int
	}{
		{"the API server", apiAddress, bridge.User, 0},
		{"upper case", "API.test:6443", bridge.User, 0},
		{"another host", "other.test:6443", bridge.User, http.StatusForbidden},
		{"another port", "api.test:2379", bridge.User, http.StatusForbidden},
		{"no password", apiAddress, nil, http.StatusProxyAuthRequired},
		{"wrong password", apiAddress, url.UserPassword(bridge.User.Username(), password+"x"), http.StatusProxyAuthRequired},
		{"empty password", apiAddress, url.UserPassword(bridge.User.Username(), ""), http.StatusProxyAuthRequired},
		{"another user", apiAddress, url.UserPassword("another", password), http.StatusProxyAuthRequired},
	} {
		u := *bridge
		u.User = test.user
		err := through(&u, test.address)
		var de *dialer.Error
		if errors.As(err, &de); test.status == 0 && err != nil || test.status != 0 && (de == nil || de.Status != test.status) {
			t.Errorf("%s: got %v, want %d", test.name, err, test.status)
		}
	}
	if len(dialed) != 1 || dialed[apiAddress] != 2 {
		t.Errorf("dialed %v, want %s twice", dialed, apiAddress)
	}
	c.Close()
	if _, err := bridgeOf(c); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Bridge after Close: got %v", err)
	}
	if _, err := c.Config().Proxy(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Proxy after Close: got %v", err)
	}
	if err := through(bridge, apiAddress); err == nil { // the port may be another's by now
		t.Error("the bridge after Close: got a connection")
	}
}

// Two Clients' bridges don't know each other's passwords.
func TestBridgeOfAnother(t *testing.T) {
	api := newAPIServer(t)
	one, err := bridgeOf(overDialer(t, api))
	if err != nil {
		t.Fatal(err)
	}
	two, err := bridgeOf(overDialer(t, api))
	if err != nil {
		t.Fatal(err)
	}
	var de *dialer.Error
	if err := through(&url.URL{Scheme: "http", Host: one.Host, User: two.User}, apiAddress); !errors.As(err, &de) || de.Status != http.StatusProxyAuthRequired {
		t.Errorf("got %v, want 407", err)
	}
}

// The password is in no error, whatever goes wrong behind the bridge.
func TestBridgePasswordInErrors(t *testing.T) {
	api := newAPIServer(t)
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{
		Dialer: dialer.Func(func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }),
	})
	bridge, err := bridgeOf(c)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := bridge.User.Password()
	config := c.Config()
	check := func(name string, err error) {
		t.Helper()
		if text := fmt.Sprintf("%v %+v %#v", err, err, err); err == nil || strings.Contains(text, password) {
			t.Errorf("%s: got %s", name, text)
		}
	}
	bySPDY, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, subresource(t, config, "exec"))
	if err != nil {
		t.Fatal(err)
	}
	check("spdy", bySPDY.StreamWithContext(t.Context(), remotecommand.StreamOptions{}))
	byWebSocket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, subresource(t, config, "exec").String())
	if err != nil {
		t.Fatal(err)
	}
	check("websocket", byWebSocket.StreamWithContext(t.Context(), remotecommand.StreamOptions{}))
	check("anonymous", namespaces(rest.AnonymousClientConfig(config)))
	for _, verb := range kubetest.Verbs {
		for _, v := range []any{c, config, c.HTTP()} {
			if strings.Contains(fmt.Sprintf(verb, v), password) {
				t.Errorf("%T with %s holds the password", v, verb)
			}
		}
	}
}

func TestBridgeCloses(t *testing.T) {
	api := newAPIServer(t)
	c := overDialer(t, api)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := bridgeOf(c); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
		wg.Go(func() { c.Close() })
	}
	wg.Wait()
}

// Close ends what runs over the bridge.
func TestBridgeCloseCuts(t *testing.T) {
	api := newAPIServer(t)
	k := newKubelet(t, api)
	c := overDialer(t, api)
	running, stdout := io.Pipe()
	failed := make(chan error)
	go func() { failed <- runCommand(t.Context(), t, c, "hang", stdout) }()
	if _, err := running.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	c.Close()
	if err := <-failed; err == nil {
		t.Error("got no error, want that the connection was cut")
	}
	<-k.ended
}

// A host without IPv4 has the other address of loopback.
func TestListenFirst(t *testing.T) {
	const nobodys = "192.0.2.1:0" // for documentation: no host has it
	l, err := connect.ListenFirst(nobodys, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := connect.ListenFirst(nobodys); err == nil {
		t.Error("got no error for an address that the host does not have")
	}
}
