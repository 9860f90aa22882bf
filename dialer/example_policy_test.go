package dialer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/noproxy"
)

// policy is how a control plane that runs apart from its cluster reaches what
// it needs, as HyperShift's konnectivity proxies do it.
type policy struct {
	Management dialer.Dialer       // the management side's way out: Direct{}, or its proxy
	Tunnel     dialer.Dialer       // into the cluster: a tunnel.Dialer
	Customer   *dialer.HTTPConnect // the cluster's own way out, seen from inside
	Cloud      []string            // what the management side reaches by itself
	NoProxy    string              // what the cluster reaches without Customer
	Services   dialer.Resolver     // names of the form service.namespace
	DNS        string              // the cluster's DNS server, an address in the cluster
	FellBack   func(network, address string, err error)
}

// Dialer says it all once. What comes first counts.
func (p policy) Dialer() (dialer.Dialer, error) {
	cloud, err := dialer.ParsePatterns(p.Cloud...)
	if err != nil {
		return nil, err
	}
	guest := &dialer.Resolve{Resolver: p, Forward: p.Tunnel}
	// While the cluster's DNS does not work, its nodes may still be found by
	// what the management side knows. Their traffic takes the tunnel anyway.
	inside := &dialer.Fallback{
		First:  guest,
		Second: &dialer.Resolve{Forward: p.Tunnel},
		When:   noAnswer,
		Used:   p.FellBack,
	}
	outside, err := dialer.Chain(inside, p.Customer) // a CONNECT inside the tunnel
	if err != nil {
		return nil, err
	}
	return &dialer.Router{
		Routes: []dialer.Route{
			{Match: cloud, Dialer: p.Management},
			{Match: dialer.PatternsFromRules(noproxy.Parse(p.NoProxy)), Dialer: inside},
		},
		Default: outside,
	}, nil
}

// LookupNetIP asks the cluster's API for what looks like a Service, and its DNS
// for the rest.
func (p policy) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if strings.Count(host, ".") == 1 {
		addrs, err := p.Services.LookupNetIP(ctx, network, host)
		var dns *net.DNSError
		if err == nil || !errors.As(err, &dns) || !dns.IsNotFound {
			return addrs, err
		}
	}
	return dialer.LookupDNS(p.Tunnel, p.DNS).LookupNetIP(ctx, network, host)
}

// noAnswer is true of a lookup that failed, and not of one that was answered.
func noAnswer(err error) bool {
	var e *dialer.Error
	var dns *net.DNSError
	return errors.As(err, &e) && e.Phase == dialer.PhaseDNS && !errors.Is(err, syscall.EACCES) &&
		!(errors.As(err, &dns) && dns.IsNotFound)
}

// Which way an address goes is looked up in one place, and whatever is not
// said fails.
func Example_policy() {
	say := func(way string) dialer.Dialer {
		return dialer.Func(func(_ context.Context, _, address string) (net.Conn, error) {
			return nil, fmt.Errorf("%s: %s", way, address)
		})
	}
	d, err := policy{
		Management: say("management"),
		Tunnel:     say("tunnel"),
		Customer:   &dialer.HTTPConnect{Addr: "10.0.0.8:3128"},
		Cloud:      []string{".cloud.example"},
		NoProxy:    ".svc,10.0.0.0/8",
		FellBack:   func(_, address string, err error) { fmt.Println("fell back:", address) },
	}.Dialer()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, address := range []string{"iam.cloud.example:443", "10.1.2.3:10250", "registry.example.com:443"} {
		_, err := d.DialContext(context.Background(), "tcp", address)
		fmt.Println(err)
	}
	// Output:
	// management: iam.cloud.example:443
	// tunnel: 10.1.2.3:10250
	// dialer: registry.example.com:443 through http://10.0.0.8:3128: tcp: tunnel: 10.0.0.8:3128
}
