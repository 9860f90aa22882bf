package connect_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// hosts are addresses by names that no resolver knows.
type hosts map[string]string

func (h hosts) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	to, ok := h[address]
	if !ok {
		return nil, fmt.Errorf("nobody is at %s", address)
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

func (s *apiServer) addr() string { return s.Listener.Addr().String() }

const otherAddress = "10.0.0.2:7443"

// buildAt is build for a server that may be at another address than that of
// its certificate.
func buildAt(t *testing.T, api *apiServer, address string) *clientcmdapi.Config {
	t.Helper()
	config := build(t, api, kubeconfig.Route{})
	config.Clusters["c1"].Server = "https://" + address
	if address != apiAddress {
		config.Clusters["c1"].TLSServerName = api.name
	}
	return config
}

// followed is a Client that was made for one server, and is given another kubeconfig.
type followed struct {
	*connect.Client
	first   *clientcmdapi.Config
	one     *apiServer
	two     *apiServer // at otherAddress
	proxy   *proxy     // at proxy.test:80, leads to one
	network *network
}

func newFollowed(t *testing.T) *followed {
	t.Helper()
	f := &followed{one: newAPIServer(t), two: newAPIServerNamed(t, "two.test")}
	f.proxy = newProxy(t, f.one, nil, nil, serveConnect)
	f.network = &network{hosts: map[string]string{apiAddress: f.one.addr(), otherAddress: f.two.addr(), "proxy.test:80": f.proxy.addr}}
	f.first = buildAt(t, f.one, apiAddress)
	f.Client = kubetest.NewClient(t, f.first, &connect.Options{Forward: f.network})
	return f
}

func (f *followed) use(t *testing.T, config *clientcmdapi.Config) {
	t.Helper()
	if err := connect.UseConfig(f.Client, config); err != nil {
		t.Error(err)
	}
}

func withToken(config *clientcmdapi.Config, token string) *clientcmdapi.Config {
	config = config.DeepCopy()
	config.AuthInfos["c1-admin"] = &clientcmdapi.AuthInfo{Token: token}
	return config
}

// What was made of a Client before a change takes what the change brought, and
// nothing of before is left open.
func TestFollow(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, f *followed) *clientcmdapi.Config
		moved  bool // to the other server
		auth   string
		proxy  []string
	}{
		{"credentials", func(t *testing.T, f *followed) *clientcmdapi.Config {
			return withToken(f.first, "new")
		}, false, "Bearer new", nil},
		{"server, CA and server name", func(t *testing.T, f *followed) *clientcmdapi.Config {
			return buildAt(t, f.two, otherAddress)
		}, true, "", nil},
		{"server and credentials", func(t *testing.T, f *followed) *clientcmdapi.Config {
			return withToken(buildAt(t, f.two, otherAddress), "new")
		}, true, "Bearer new", nil},
		{"route", func(t *testing.T, f *followed) *clientcmdapi.Config {
			config := f.first.DeepCopy()
			config.Clusters["c1"].ProxyURL = "http://proxy.test"
			return config
		}, false, "", []string{apiAddress}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFollowed(t)
			config := f.Config()
			core, err := coreclient.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			list := func() {
				t.Helper()
				if _, err := core.Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			list()
			f.use(t, test.change(t, f))
			<-f.one.closed // the idle connection, at once
			list()
			to, host, served := f.one, apiAddress, 2
			if test.moved {
				to, host, served = f.two, otherAddress, 1
			}
			if got := to.acceptedConns(); got != served {
				t.Errorf("got %d connections of the server, want %d", got, served)
			}
			if got := to.lastHost(); got != host {
				t.Errorf("got a request for %s, want %s", got, host)
			}
			if got := to.lastHeader().Get("Authorization"); got != test.auth {
				t.Errorf("got Authorization %q, want %q", got, test.auth)
			}
			if diff := cmp.Diff(test.proxy, f.proxy.targets()); diff != "" {
				t.Errorf("what the proxy was asked for (-want +got):\n%s", diff)
			}
			if want := "https://" + host; f.Config().Host != want || f.String() != "connect.Client{"+want+"}" {
				t.Errorf("got %s and %s, want %s", f.Config().Host, f, want)
			}
			if err := namespaces(f.Config()); err != nil {
				t.Error(err)
			}
		})
	}
}

// What the Client can't use changes nothing.
func TestFollowErrors(t *testing.T) {
	f := newFollowed(t)
	request := func() {
		t.Helper()
		if err := namespaces(f.Config()); err != nil {
			t.Error(err)
		}
	}
	request()
	bad := f.first.DeepCopy()
	bad.Clusters["c1"].ProxyURL = "ftp://u:s3cret@proxy"
	for _, config := range []*clientcmdapi.Config{clientcmdapi.NewConfig(), bad} {
		err := connect.UseConfig(f.Client, config)
		var fe *kubeconfig.FieldError
		if !errors.As(err, &fe) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got %v, want a FieldError without the password", err)
		}
		request()
	}
	f.use(t, f.first.DeepCopy()) // the same
	request()
	if got := f.one.acceptedConns(); got != 1 {
		t.Errorf("got %d connections, want 1: nothing has changed", got)
	}
}

// A kubeconfig that differs in what a Client does not use is the same.
func TestFollowSame(t *testing.T) {
	f := newFollowed(t)
	if err := namespaces(f.Config()); err != nil {
		t.Fatal(err)
	}
	other := f.first.DeepCopy()
	other.Contexts["renamed"] = other.Contexts[other.CurrentContext]
	other.CurrentContext = "renamed"
	other.Contexts["renamed"].Namespace = "other"
	other.Clusters["another"] = &clientcmdapi.Cluster{Server: "https://another.test"}
	other.Clusters["c1"].LocationOfOrigin = "/somewhere"
	f.use(t, other)
	if err := namespaces(f.Config()); err != nil {
		t.Fatal(err)
	}
	if got := f.one.acceptedConns(); got != 1 {
		t.Errorf("got %d connections, want 1", got)
	}
}

// open begins a watch by HTTP and returns the reader of its second line.
func open(t *testing.T, f *followed) *bufio.Reader {
	t.Helper()
	resp, err := get(f.HTTP(), "/api/v1/namespaces?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	br := bufio.NewReader(resp.Body)
	if _, err := br.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return br
}

// Requests that are under way go on, beside new ones, until they have ended.
func TestFollowLingers(t *testing.T) {
	f := newFollowed(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+apiAddress+"/hang", nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := f.HTTP().Do(req)
		ended <- err
	}()
	<-f.one.hanging
	f.use(t, buildAt(t, f.two, otherAddress))
	if err := namespaces(f.Config()); err != nil || f.two.acceptedConns() != 1 {
		t.Errorf("a new request: got %v, %d connections", err, f.two.acceptedConns())
	}
	select {
	case err := <-ended:
		t.Errorf("the old request ended: %v", err)
	case <-f.one.closed:
		t.Error("the old connection was closed under its request")
	default:
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the old request: got %v", err)
	}
	<-f.one.closed // with its last request
}

// After 30 seconds what is left is cut, so that client-go goes on with the new
// kubeconfig.
func TestFollowCuts(t *testing.T) {
	f := newFollowed(t)
	f.SetLinger(0)
	core, err := coreclient.NewForConfig(f.Config())
	if err != nil {
		t.Fatal(err)
	}
	w, err := core.Namespaces().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if event := <-w.ResultChan(); event.Type != watch.Added {
		t.Fatalf("got %v, want an event", event)
	}
	br := open(t, f)
	f.use(t, buildAt(t, f.two, otherAddress))
	if event, ok := <-w.ResultChan(); ok {
		t.Errorf("got %v, want an end after which a reflector resumes", event)
	}
	_, err = br.ReadString('\n')
	if !errors.Is(err, syscall.ECONNRESET) || !utilnet.IsConnectionReset(err) || errors.Is(err, net.ErrClosed) {
		t.Errorf("a read: got %v, want a reset", err)
	}
	<-f.one.closed
}

// A request that is cut is repeated by client-go, to the new server.
func TestFollowRepeats(t *testing.T) {
	f := newFollowed(t)
	f.SetLinger(0)
	core, err := coreclient.NewForConfig(f.Config())
	if err != nil {
		t.Fatal(err)
	}
	f.two.hanging = nil
	got := make(chan error)
	go func() { got <- core.RESTClient().Get().AbsPath("/hang").Do(t.Context()).Error() }()
	<-f.one.hanging
	f.use(t, buildAt(t, f.two, otherAddress))
	if err := <-got; !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want the answer of the new server", err)
	}
}

// openFiles counts descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// 200 changes, each with a request and a watch that was cut, leave nothing.
func TestFollowManyChanges(t *testing.T) {
	f := newFollowed(t)
	f.SetLinger(0)
	configs := []*clientcmdapi.Config{buildAt(t, f.two, otherAddress), f.first, withToken(f.first, "new")}
	servers := []*apiServer{f.two, f.one, f.one}
	var files int
	now := f.one
	for i := range 200 {
		open(t, f)
		if err := namespaces(f.Config()); err != nil {
			t.Fatal(err)
		}
		f.use(t, configs[i%3])
		<-now.closed
		now = servers[i%3]
		if i == 20 {
			files = openFiles(t)
		}
	}
	if got := f.one.acceptedConns() + f.two.acceptedConns(); got != 200 {
		t.Errorf("got %d connections, want one for each kubeconfig", got)
	}
	if got := openFiles(t); got > files+10 {
		t.Errorf("%d files are open, %d were after 20 changes", got, files)
	}
}

// Changes and Close meet at every point.
func TestFollowClose(t *testing.T) {
	for range 20 {
		f := newFollowed(t)
		two := buildAt(t, f.two, otherAddress)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					f.use(t, []*clientcmdapi.Config{two, f.first}[i%2])
				}
			}
		})
		wg.Go(func() {
			for {
				if err := namespaces(f.Config()); err != nil {
					checkClosed(t, "a request", err)
					return
				}
			}
		})
		f.Close()
		close(stop)
		wg.Wait()
	}
}
