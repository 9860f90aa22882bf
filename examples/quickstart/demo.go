package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"text/tabwriter"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// A demo is a cluster and the routes to it.
type demo struct {
	intro  string
	spec   kubeconfig.Spec // without a route
	routes []route
	// standIn: without a proxy, and with a wrong password, the cluster must
	// not be reached.
	standIn bool
	next    string // what to try next
	close   func()
}

// A route is a way to the cluster, and how to trust its proxy.
type route struct {
	name    string
	route   kubeconfig.Route // the zero value is direct
	options *connect.Options
}

// run tries the routes, then what happens without the proxy and with a wrong
// password, and fails if a route did not reach the API server.
func (d *demo) run(ctx context.Context, w io.Writer, out string) error {
	fmt.Fprintf(w, "%s\n\n", d.intro)
	var failed []error
	var attempts []attempt
	for i, r := range d.routes {
		a := d.try(ctx, r)
		attempts = append(attempts, a)
		if a.err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", r.name, a.err))
		}
		if i == 0 && out != "" && a.config != nil {
			if err := writeKubeconfig(a, out); err != nil {
				return err
			}
			fmt.Fprintf(w, "The kubeconfig for %s is in %s.\n\n", r.name, out)
		}
	}
	printTable(w, attempts)

	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range d.failingRoutes() {
		a := d.try(ctx, r)
		if a.err != nil {
			fmt.Fprintf(tw, "%s\t%v\n", r.name, shortError(a.err))
			continue
		}
		fmt.Fprintf(tw, "%s\treached the API server as well: %s\n", r.name, a.answer)
		if d.standIn {
			failed = append(failed, fmt.Errorf("%s: reached the API server, which it must not", r.name))
		}
	}
	tw.Flush()
	if d.next != "" {
		fmt.Fprintf(w, "\n%s", d.next)
	}
	return errors.Join(failed...)
}

// notThePassword is no ordinary word: errors have *** in the place of each password.
const notThePassword = "not-the-password"

// failingRoutes returns the routes that must not work: no proxy, and each proxy
// with a wrong password.
func (d *demo) failingRoutes() []route {
	var wrong []route
	proxied := false
	for _, r := range d.routes {
		if t := r.route.Tunnel; t != nil {
			without := *t
			without.Password = notThePassword
			wrong = append(wrong, route{r.name + ", wrong ticket", kubeconfig.Route{Tunnel: &without}, r.options})
		}
		u, err := url.Parse(r.route.ProxyURL)
		if err != nil || r.route.ProxyURL == "" {
			continue
		}
		proxied = true
		if u.User != nil {
			u.User = url.UserPassword(u.User.Username(), notThePassword)
			wrong = append(wrong, route{r.name + ", wrong password", kubeconfig.Route{ProxyURL: u.String()}, r.options})
		}
	}
	if !proxied {
		return nil
	}
	direct := dialer.Direct{Dialer: &net.Dialer{Timeout: directTimeout}}
	return append([]route{{"no proxy", kubeconfig.Route{}, &connect.Options{Forward: direct}}}, wrong...)
}

func writeKubeconfig(a attempt, file string) error {
	data, err := clientcmd.Write(*a.config)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}
