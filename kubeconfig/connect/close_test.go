package connect_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// checkClosed wants an error that is net.ErrClosed, and that client-go does
// not take for a reason to try again.
func checkClosed(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("%s: got %v, want net.ErrClosed", what, err)
	}
	if utilnet.IsProbableEOF(err) || utilnet.IsConnectionReset(err) {
		t.Errorf("%s: client-go would repeat the request after %v", what, err)
	}
}

func get(c *http.Client, path string) (*http.Response, error) {
	return c.Get("https://" + apiAddress + path)
}

func TestCloseEndsConnections(t *testing.T) {
	api := newAPIServer(t)
	p := newProxy(t, api, nil, nil, serveConnect)
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{ProxyURL: p.url("http")}), nil)
	if err := namespaces(c.Config()); err != nil {
		t.Fatal(err)
	}
	config, client := c.Config(), c.HTTP()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	<-api.closed
	checkClosed(t, "clientset", namespaces(config))
	checkClosed(t, "new clientset", namespaces(c.Config()))
	_, err := get(client, "/version")
	checkClosed(t, "HTTP", err)
	if got := api.acceptedConns(); got != 1 {
		t.Errorf("got %d connections, want none after Close", got-1)
	}
}

func TestCloseEndsWatch(t *testing.T) {
	api := newAPIServer(t)
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Forward: api.dialer()})
	core, err := coreclient.NewForConfig(c.Config())
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
	c.Close()
	for event := range w.ResultChan() {
		if event.Type != watch.Error {
			t.Errorf("got %v after Close", event)
		}
	}
}

func TestCloseEndsRequests(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			api := newAPIServer(t)
			api.TLS.NextProtos = []string{protocol}
			c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Forward: api.dialer()})
			resp, err := get(c.HTTP(), "/api/v1/namespaces?watch=true")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got := resp.ProtoMajor; got != map[string]int{"h2": 2, "http/1.1": 1}[protocol] {
				t.Fatalf("got HTTP/%d", got)
			}
			br := bufio.NewReader(resp.Body)
			if _, err := br.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			body, request := make(chan error), make(chan error)
			go func() {
				_, err := br.ReadString('\n')
				body <- err
			}()
			go func() {
				_, err := get(c.HTTP(), "/hang")
				request <- err
			}()
			<-api.hanging
			c.Close()
			checkClosed(t, "body", <-body)
			checkClosed(t, "request", <-request)
			<-api.closed
		})
	}
}

// An answer that ends in its own time is not an error, closed or not.
func TestCloseKeepsEOF(t *testing.T) {
	api := newAPIServer(t)
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Forward: api.dialer()})
	resp, err := get(c.HTTP(), "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("got %v, want EOF", err)
	}
}

func TestCloseEndsDial(t *testing.T) {
	api := newAPIServer(t)
	dialing := make(chan struct{})
	d := dialer.Func(func(ctx context.Context, _, _ string) (net.Conn, error) {
		close(dialing)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Dialer: d})
	failed := make(chan error)
	go func() { failed <- namespaces(c.Config()) }()
	<-dialing
	c.Close()
	checkClosed(t, "dialing", <-failed)
}

// A dial that ends after Close leaves nothing open.
func TestCloseBeatsDial(t *testing.T) {
	api := newAPIServer(t)
	ours, theirs := net.Pipe()
	dialing, closed := make(chan struct{}), make(chan struct{})
	d := dialer.Func(func(context.Context, string, string) (net.Conn, error) {
		close(dialing)
		<-closed
		return ours, nil
	})
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Dialer: d})
	failed := make(chan error)
	go func() { failed <- namespaces(c.Config()) }()
	<-dialing
	c.Close()
	close(closed)
	if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection is open: %v", err)
	}
	checkClosed(t, "dialing", <-failed)
}

// A connection that ends by itself is forgotten, and replaced.
func TestClientReconnects(t *testing.T) {
	api := newAPIServer(t)
	var open []net.Conn
	d := dialer.Func(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := api.dial(ctx, network, address)
		open = append(open, conn)
		return conn, err
	})
	c := kubetest.NewClient(t, build(t, api, kubeconfig.Route{}), &connect.Options{Dialer: d})
	for range 3 {
		if err := namespaces(c.Config()); err != nil {
			t.Fatal(err)
		}
		c.HTTP().CloseIdleConnections()
		<-api.closed
	}
	if got := len(open); got != 3 {
		t.Errorf("got %d connections, want 3", got)
	}
}
