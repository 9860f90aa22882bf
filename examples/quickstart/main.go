// Quickstart reaches a Kubernetes API server through proxies and a tunnel, with a
// kubeconfig Secret as Cluster API expects it, and prints what came of it.
//
// It needs nothing but itself: it starts a stand-in for an API server, at an address that
// only its proxies can reach; an HTTP, an HTTPS and a SOCKS5 proxy; and a tunnel, which is
// a server, an agent and a gateway.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// A demo is a cluster and the routes to it.
type demo struct {
	spec   kubeconfig.Spec // without a route
	routes []route
}

// A route is a way to the cluster, and how to trust its proxy.
type route struct {
	name    string
	route   kubeconfig.Route // the zero value is direct
	options *connect.Options
}

// run tries the routes, then what happens without a proxy and with a wrong password. It
// fails unless the first reach the API server and the others do not.
func run(ctx context.Context, w io.Writer) error {
	var s starter
	defer s.stop()
	d := s.startDemo()
	if s.err != nil {
		return s.err
	}
	fmt.Fprintf(w, "The API server is a stand-in in this process: it knows /version, /readyz and namespaces.\n"+
		"Only the proxies and the tunnel, in the same process, lead to its address, %s:%d.\n\n", standInHost, standInPort)
	var failed []error
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ROUTE\tAPI SERVER")
	for _, r := range d.routes {
		answer, err := d.try(ctx, r)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", r.name, err))
			answer = "FAILED: " + shortError(err).Error()
		}
		fmt.Fprintf(tw, "%s\t%s\n", r.name, answer)
	}
	tw.Flush()
	fmt.Fprintln(w)
	for _, r := range d.failingRoutes() {
		if _, err := d.try(ctx, r); err != nil {
			fmt.Fprintf(tw, "%s\t%v\n", r.name, shortError(err))
		} else {
			failed = append(failed, fmt.Errorf("%s: reached the API server, which it must not", r.name))
		}
	}
	tw.Flush()
	fmt.Fprintf(w, "\n%s", next)
	return errors.Join(failed...)
}

// notThePassword is no ordinary word: errors have *** in the place of each password.
const notThePassword = "not-the-password"

// failingRoutes returns the routes that must not work: no proxy, and each proxy
// with a wrong password.
func (d *demo) failingRoutes() []route {
	direct := dialer.Direct{Dialer: &net.Dialer{Timeout: directTimeout}}
	wrong := []route{{"no proxy", kubeconfig.Route{}, &connect.Options{Forward: direct}}}
	for _, r := range d.routes {
		if t := r.route.Tunnel; t != nil {
			without := *t
			without.Password = notThePassword
			wrong = append(wrong, route{r.name + ", wrong ticket", kubeconfig.Route{Tunnel: &without}, r.options})
		} else if u, err := url.Parse(r.route.ProxyURL); err == nil {
			u.User = url.UserPassword(username, notThePassword)
			wrong = append(wrong, route{r.name + ", wrong password", kubeconfig.Route{ProxyURL: u.String()}, r.options})
		}
	}
	return wrong
}

const (
	attemptTimeout = 15 * time.Second
	directTimeout  = 2 * time.Second // what is not there may not answer
)

// try does what a controller does: it asks the API server with what the kubeconfig Secret
// holds.
func (d *demo) try(ctx context.Context, r route) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	client, err := d.newClient(r)
	if err != nil {
		return "", err
	}
	defer client.Close()
	core, err := coreclient.NewForConfig(client.Config()) // kubernetes.NewForConfig does as well
	if err != nil {
		return "", err
	}
	return ask(ctx, core)
}

// newClient builds the kubeconfig and its Secret, and returns a client of what the
// Secret holds.
func (d *demo) newClient(r route) (*connect.Client, error) {
	spec := d.spec
	spec.Route = r.route
	config, err := spec.Build()
	if err != nil {
		return nil, err
	}
	secret, err := kubeconfig.Secret(spec.Name, "default", config, nil)
	if err != nil {
		return nil, err
	}
	if config, err = kubeconfig.FromSecret(secret); err != nil {
		return nil, err
	}
	return connect.New(config, r.options)
}

// ask gets an answer from the API server that shows people that it was reached.
func ask(ctx context.Context, core coreclient.CoreV1Interface) (string, error) {
	ready, err := core.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	text, err := core.RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var server version.Info
	if err := json.Unmarshal(text, &server); err != nil {
		return "", err
	}
	list, err := core.Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	watched, err := watchOne(ctx, core)
	if err != nil {
		return "", fmt.Errorf("watch: %w", err)
	}
	return fmt.Sprintf("%s, readyz %s, %d namespaces, watch saw %q", server.GitVersion, ready, len(list.Items), watched), nil
}

// watchOne returns the name of the first namespace that a watch tells of.
func watchOne(ctx context.Context, core coreclient.CoreV1Interface) (string, error) {
	w, err := core.Namespaces().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		ns, ok := e.Object.(*corev1.Namespace)
		if !ok {
			return "", fmt.Errorf("got an event %q that is no namespace", e.Type)
		}
		return ns.Name, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// shortError is the dialer's own error if there is one: client-go puts the
// request before it.
func shortError(err error) error {
	if e, ok := errors.AsType[*dialer.Error](err); ok {
		return e
	}
	return err
}
