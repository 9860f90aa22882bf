// Quickstart reaches a Kubernetes API server through proxies and a tunnel, with a
// kubeconfig Secret as Cluster API expects it, and prints what came of it.
//
// It needs nothing but itself: it starts a stand-in for an API server, at an address that
// only its proxies can reach; an HTTP, an HTTPS and a SOCKS5 proxy; and a tunnel, which is
// a server, an agent and a gateway.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"

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
