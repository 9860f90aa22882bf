package bed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/causewayproject/causeway/internal/relay"
	"github.com/causewayproject/causeway/internal/test/proxytest"
)

// A Star is hosts around a router, apart from the rest of the bed. Each reaches
// each other, and the router, until it is cut off.
type Star struct {
	Router *Namespace

	hosts  []*Namespace
	number map[string]int // the hosts', by name
	relays []*proxytest.Server
}

// StarRouterIP is the address of the router of a Star, for all hosts.
const StarRouterIP = "10.2.0.1"

// NewStar makes a star with hosts of these names. The caller closes it; the
// bed's end does too.
func (b *Bed) NewStar(ctx context.Context, names ...string) (*Star, error) {
	return b.newStar(ctx, "star.nft", names...)
}

// newStar makes a star whose router has the rules of a file.
func (b *Bed) newStar(ctx context.Context, rules string, names ...string) (*Star, error) {
	s := &Star{number: map[string]int{}}
	if err := s.createStar(ctx, b.Network, rules, names); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Star) createStar(ctx context.Context, n *Network, rules string, names []string) error {
	if err := n.addRouter(ctx, &s.Router, StarRouterIP); err != nil {
		return err
	}
	s.hosts = make([]*Namespace, len(names))
	for i, name := range names {
		if err := n.AddNamespaces(ctx, &s.hosts[i]); err != nil {
			return err
		}
		s.number[name] = i + 1
		gateway := fmt.Sprintf("10.2.%d.1", i+1)
		err := linkNamespaces(ctx, s.Router, fmt.Sprintf("host%d", i+1), gateway+"/24", s.hosts[i], s.IP(name)+"/24", "route add default via "+gateway)
		if err != nil {
			return err
		}
	}
	return s.Router.runNFT(ctx, readConfig(rules, nil))
}

// Host returns a host by its name.
func (s *Star) Host(name string) *Namespace { return s.hosts[s.number[name]-1] }

// IP returns a host's address, or the router's, whose name is "router".
func (s *Star) IP(name string) string {
	if name == "router" {
		return StarRouterIP
	}
	return fmt.Sprintf("10.2.%d.2", s.number[name])
}

// Cut drops what a host sends to the others, which may be "router".
func (s *Star) Cut(ctx context.Context, from string, to ...string) error {
	return s.Router.runNFT(ctx, s.faultRules("drop", from, to))
}

// Reset answers what a host sends to the others with TCP's reset, instead of
// all other faults.
func (s *Star) Reset(ctx context.Context, from string, to ...string) error {
	return s.Router.runNFT(ctx, noFaults+s.faultRules("meta l4proto tcp reject with tcp reset", from, to))
}

// Heal ends all faults.
func (s *Star) Heal(ctx context.Context) error { return s.Router.runNFT(ctx, noFaults) }

const (
	noFaults = "flush chain ip bed faults\n"
	addFault = "add rule ip bed faults "
)

func (s *Star) faultRules(verdict, from string, to []string) string {
	var rules strings.Builder
	for _, name := range to {
		fmt.Fprintf(&rules, addFault+"ip saddr %s ip daddr %s %s\n", s.IP(from), s.IP(name), verdict)
	}
	return rules.String()
}

// Lead relays a port of the router to dial's connections, until Close.
func (s *Star) Lead(port string, dial func(context.Context) (net.Conn, error)) error {
	l, err := s.Router.Listen(net.JoinHostPort(StarRouterIP, port))
	if err != nil {
		return fmt.Errorf("bed: star: %w", err)
	}
	s.relays = append(s.relays, proxytest.Serve(l, func(ctx context.Context, conn net.Conn) {
		if to, err := dial(ctx); err == nil {
			relay.Relay(ctx, conn, to)
		}
	}))
	return nil
}

// Close removes the star's namespaces. The caller has to stop before what runs
// in them.
func (s *Star) Close() error {
	for _, r := range s.relays {
		r.Close()
	}
	return RemoveNamespaces(append(s.hosts, s.Router)...)
}

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
	return p.Router.runNFT(ctx, addFault+strings.Join(rules, "\n"+addFault))
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
