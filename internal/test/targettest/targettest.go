// Package targettest is what an agent's machine sees, for tests of targets.
package targettest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// Network is what an agent's machine sees: names, and addresses that take
// connections. It notes what it was asked: read that once nobody uses it.
type Network struct {
	Hosts map[string]string                                                    // addresses, separated by spaces; "*" for all other names
	Dial  func(ctx context.Context, network, address string) (net.Conn, error) // nil: all take connections

	mu      sync.Mutex // guards the fields below
	Lookups []string
	Dialed  []string
}

// LookupNetIP looks up Hosts.
func (n *Network) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Lookups = append(n.Lookups, host)
	text, ok := n.Hosts[host]
	if !ok {
		text, ok = n.Hosts["*"]
	}
	if !ok || network != "ip" {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.96.0.10:53", IsNotFound: true}
	}
	var addrs []netip.Addr
	for field := range strings.FieldsSeq(text) {
		addrs = append(addrs, netip.MustParseAddr(field))
	}
	return addrs, nil
}

// DialContext calls Dial.
func (n *Network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	n.Dialed = append(n.Dialed, address)
	n.mu.Unlock()
	if network != "tcp" {
		return nil, net.UnknownNetworkError(network)
	}
	if n.Dial != nil {
		return n.Dial(ctx, network, address)
	}
	conn, peer := net.Pipe()
	peer.Close()
	return conn, nil
}

// Resolver is a function that looks names up.
type Resolver func(ctx context.Context, host string) ([]netip.Addr, error)

// LookupNetIP calls r.
func (r Resolver) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	return r(ctx, host)
}

// Hang is a host that does not answer.
func Hang(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: CanaryAddr, Err: errors.New("gave up")}
}

// Canary is an address that no text may hold.
const Canary = "10.77.66.55"

// CanaryAddr is Canary as an address to dial.
var CanaryAddr = &net.TCPAddr{IP: net.ParseIP(Canary), Port: 443}
