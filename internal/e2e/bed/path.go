package bed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// The addresses of a Path and of a test's wire; each has them to itself.
const (
	NearIP       = "203.0.113.34"
	NearRouterIP = "203.0.113.33"
	FarIP        = "203.0.113.66"
	FarRouterIP  = "203.0.113.65"
)

// A Path is two hosts with a router between them, apart from the rest of the
// bed. The router is a firewall too: connections go from the far host to the
// near one, and none the other way.
type Path struct {
	Near, Router, Far *Namespace
}

// NewPath makes a path. The caller closes it; the bed's end does too.
func (b *Bed) NewPath(ctx context.Context) (*Path, error) {
	p := &Path{}
	if err := p.createPath(ctx, b.Network); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Path) createPath(ctx context.Context, n *Network) error {
	if err := n.AddNamespaces(ctx, &p.Near, &p.Router, &p.Far); err != nil {
		return err
	}
	if err := linkNamespaces(ctx, p.Router, "eth0", NearRouterIP+"/29", p.Near, NearIP+"/29", "route add default via "+NearRouterIP); err != nil {
		return err
	}
	if err := linkNamespaces(ctx, p.Router, "eth1", FarRouterIP+"/29", p.Far, FarIP+"/29", "route add default via "+FarRouterIP); err != nil {
		return err
	}
	if err := p.Router.setForwarding("1"); err != nil {
		return err
	}
	return p.Router.runNFT(ctx, readConfig("path.nft", nil))
}

// Fault adds rules to the router's forwarding chain, as "tcp sport 4711 drop".
func (p *Path) Fault(ctx context.Context, rules ...string) error {
	var text strings.Builder
	for _, rule := range rules {
		fmt.Fprintf(&text, "add rule ip bed faults %s\n", rule)
	}
	return p.Router.runNFT(ctx, text.String())
}

// SetLink sets the router's link to the far host up or down. Its routes stay.
func (p *Path) SetLink(ctx context.Context, state string) error {
	return p.Router.RunIP(ctx, "link set eth1 "+state)
}

// Balance starts a load balancer on the router, haproxy, that listens on the
// far side and passes TCP on to a port of the near host. It cuts what is idle
// for as long as idle says, in the form that haproxy takes ("5s").
func (p *Path) Balance(ctx context.Context, port int, idle string) (address string, err error) {
	address = fmt.Sprintf("%s:%d", FarRouterIP, port)
	config := readConfig("balance.cfg", map[string]string{
		"address": address, "target": fmt.Sprintf("%s:%d", NearIP, port), "idle": idle,
	})
	name, dir := "balance-"+p.Router.Name, p.Router.run.dir
	if err := writeFiles(dir, 0o755, map[string]string{name + ".cfg": config}); err != nil {
		return "", err
	}
	process, err := p.Router.start(name, programPath("haproxy"), "-db", "-f", filepath.Join(dir, name+".cfg"))
	if err != nil {
		return "", err
	}
	return address, p.Far.waitListening(ctx, process, address)
}

// Close removes the path's namespaces. The caller has to stop before what runs
// in them.
func (p *Path) Close() error { return RemoveNamespaces(p.Near, p.Router, p.Far) }
