// Quickstart reaches a Kubernetes API server through a proxy, with a
// kubeconfig Secret as Cluster API expects it, and prints what each step took.
//
// Without flags it needs nothing but itself: it starts a stand-in for an API
// server, at an address that only its proxies can reach; an HTTP, an HTTPS and
// a SOCKS5 proxy; and a tunnel, which is a server, an agent and a gateway. With -kubeconfig and -proxy it does the same with a real
// cluster and proxy:
//
//	quickstart -kubeconfig FILE [-proxy URL] [-proxy-ca FILE] [-o FILE]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// flags are the command line.
type flags struct {
	kubeconfig, proxy, proxyCA, out string
}

func run(ctx context.Context, args []string, w io.Writer) error {
	var f flags
	set := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "reach the cluster of this `file`'s current context, instead of a stand-in")
	set.StringVar(&f.proxy, "proxy", "", "reach it through the proxy at this `URL`: http, https, socks5 or socks5h (default: its proxy-url)")
	set.StringVar(&f.proxyCA, "proxy-ca", "", "PEM `file` of the CA of an https proxy (default: the system's roots)")
	set.StringVar(&f.out, "o", "", "write the kubeconfig to this `file`, credentials included")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case set.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	case f.kubeconfig == "" && (f.proxy != "" || f.proxyCA != ""):
		return errors.New("-proxy and -proxy-ca need -kubeconfig: they are for a cluster of yours")
	}
	var (
		d   *demo
		err error
	)
	if f.kubeconfig == "" {
		d, err = standIns()
	} else {
		d, err = userDemo(f)
	}
	if err != nil {
		return err
	}
	defer d.close()
	return d.run(ctx, w, f.out)
}
