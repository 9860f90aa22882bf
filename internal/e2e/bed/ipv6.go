package bed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/causewayproject/causeway/internal/test/pki"
)

// The addresses of an IPv6Only, from the range that is reserved for documentation.
const (
	IPv6ClientIP   = "2001:db8:1::2"
	IPv6OtherIP    = "2001:db8:1::3" // the client's, too
	IPv6ProxyIP    = "2001:db8:1::1"
	IPv6ProxyAPIIP = "2001:db8:2::1"
	IPv6APIIP      = "2001:db8:2::10"
)

// An IPv6Only is three hosts that have no IPv4 address, not even 127.0.0.1, apart
// from the rest of the bed. The client reaches the API server only by the proxies, and
// the other way around.
type IPv6Only struct {
	Client, Proxy, API *Namespace

	Kube                 *Kube
	Squid, Office, Dante *Proxy
}

// NewIPv6Only makes the hosts and starts what runs on them. The caller closes it; the
// bed's end does too.
func (b *Bed) NewIPv6Only(ctx context.Context) (*IPv6Only, error) {
	o := &IPv6Only{}
	err := o.linkHosts(ctx, b.Network)
	if err == nil {
		err = o.startServers(ctx, b)
	}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *IPv6Only) linkHosts(ctx context.Context, n *Network) error {
	number := n.paths.Add(1)
	for _, made := range []struct {
		ns   **Namespace
		name string
	}{{&o.Client, "client"}, {&o.Proxy, "proxy"}, {&o.API, "api"}} {
		var err error
		if *made.ns, err = n.addNamespace(ctx, fmt.Sprintf("ipv6-%d-%s", number, made.name)); err != nil {
			return err
		}
		if err := (*made.ns).removeIPv4(ctx); err != nil {
			return err
		}
	}
	if err := linkNamespaces(ctx, o.Proxy, "eth1", IPv6ProxyIP+"/64", o.Client, IPv6ClientIP+"/64"); err != nil {
		return err
	}
	if err := linkNamespaces(ctx, o.Proxy, "eth2", IPv6ProxyAPIIP+"/64", o.API, IPv6APIIP+"/64"); err != nil {
		return err
	}
	return runIP(ctx, "-n", o.Client.Name, "addr", "add", IPv6OtherIP+"/64", "dev", "eth0", "nodad")
}

func (o *IPv6Only) startServers(ctx context.Context, b *Bed) error {
	ca := pki.NewCA("kubernetes")
	dir := filepath.Join(b.Dir, o.Proxy.Name)
	if err := writeFiles(dir, 0o755, nil); err != nil {
		return err
	}
	h := proxyHost{ns: o.Proxy, name: "ipv6-", dir: dir, inside: IPv6ProxyIP, outside: IPv6ProxyAPIIP, api: IPv6APIIP}
	starts := []func() error{
		func() (err error) {
			o.Kube, err = b.StartControlPlane(ctx, o.API, "ipv6", IPv6APIIP, ca)
			return err
		},
		func() (err error) { o.Squid, err = startSquid(ctx, h, ca); return err },
		func() (err error) { o.Office, err = startOffice(ctx, h); return err },
		func() (err error) { o.Dante, err = startDante(ctx, h); return err },
	}
	errs := make([]error, len(starts))
	var wg sync.WaitGroup
	for i, start := range starts {
		wg.Go(func() { errs[i] = start() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close stops the servers and removes the namespaces. The caller has to stop before
// what else runs in them.
func (o *IPv6Only) Close() error {
	for _, p := range []*Proxy{o.Squid, o.Office, o.Dante} {
		if p != nil && p.process != nil {
			p.Stop()
		}
	}
	if o.Kube != nil {
		o.Kube.Stop()
	}
	return removeMade(o.Client, o.Proxy, o.API)
}
