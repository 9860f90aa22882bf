package bed

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// The addresses of a Path and of a test's wire; each has them to itself.
const (
	NearIP = "10.2.1.2"
	FarIP  = "10.2.2.2"
)

// A Path is a star of two hosts, whose router is a firewall too: connections go
// from the far host to the near one, and none the other way.
type Path struct {
	*Star
	Near, Far *Namespace
}

// NewPath makes a path. The caller closes it; the bed's end does too.
func (b *Bed) NewPath(ctx context.Context) (*Path, error) {
	s, err := b.newStar(ctx, "path.nft", "near", "far")
	if err != nil {
		return nil, err
	}
	return &Path{s, s.Host("near"), s.Host("far")}, nil
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
	return p.Router.RunIP(ctx, "link set host2 "+state)
}

// Balance starts a load balancer on the router, haproxy, that passes TCP on to a port of the near host. It cuts what is idle
// for as long as idle says, in the form that haproxy takes ("5s").
func (p *Path) Balance(ctx context.Context, port int, idle string) (address string, err error) {
	address = fmt.Sprintf("%s:%d", StarRouterIP, port)
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
