package bed

import (
	"context"
	"errors"
	"path/filepath"

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
	if err := n.AddNamespaces(ctx, &o.Client, &o.Proxy, &o.API); err != nil {
		return err
	}
	for _, ns := range []*Namespace{o.Client, o.Proxy, o.API} {
		if err := ns.RunIP(ctx, "-4 addr flush dev lo"); err != nil { // 127.0.0.1 as well
			return err
		}
	}
	const usable = "/64 nodad"
	err := linkNamespaces(ctx, o.Proxy, "eth1", IPv6ProxyIP+usable, o.Client, IPv6ClientIP+usable, "addr add "+IPv6OtherIP+usable+" dev eth0")
	if err != nil {
		return err
	}
	return linkNamespaces(ctx, o.Proxy, "eth2", IPv6ProxyAPIIP+usable, o.API, IPv6APIIP+usable)
}

func (o *IPv6Only) startServers(ctx context.Context, b *Bed) error {
	ca := pki.NewCA("kubernetes")
	dir := filepath.Join(b.Dir, o.Proxy.Name)
	if err := writeFiles(dir, 0o755, nil); err != nil {
		return err
	}
	h := proxyHost{ns: o.Proxy, name: "ipv6-", dir: dir, inside: IPv6ProxyIP, outside: IPv6ProxyAPIIP, api: IPv6APIIP}
	return startAll(
		func() (err error) {
			o.Kube, err = b.StartKube(ctx, o.API, "ipv6", IPv6APIIP, KubeOptions{CA: ca})
			return err
		},
		func() (err error) { o.Squid, err = startSquid(ctx, h, ca); return err },
		func() (err error) { o.Office, err = startOffice(ctx, h); return err },
		func() (err error) { o.Dante, err = startDante(ctx, h); return err },
	)
}

// Close stops the servers and removes the namespaces. The caller has to stop before
// what else runs in them.
func (o *IPv6Only) Close() error {
	for _, p := range []*Proxy{o.Squid, o.Office, o.Dante} {
		p.Stop()
	}
	if o.Kube != nil {
		o.Kube.Stop()
	}
	return RemoveNamespaces(o.Client, o.Proxy, o.API)
}
