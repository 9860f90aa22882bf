package dialer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/causewayproject/causeway/noproxy"
)

// Router dials each address by the first of these that applies:
//
//  1. Direct, where NoProxy says so.
//  2. The Dialer of the first of Routes whose Match has the address.
//  3. Default.
//
// It looks at what was asked for and resolves no names: a route of networks
// has addresses, not names that resolve to them. Names are compared in their
// ASCII form without regard to case; a dot at the end of one counts, as it does
// in package noproxy. A port is compared as a number.
//
// An address that can't be read is an error, and so is a route without a Match
// or a Dialer, wherever it is in the list: neither turns into a direct
// connection. A Router is safe for concurrent use once its fields are set.
type Router struct {
	// NoProxy is what Direct dials. [noproxy.Parse] includes localhost and
	// loopback addresses, whatever Routes say about them. If nil, all
	// addresses go to Routes and Default, these as well.
	NoProxy *noproxy.Rules
	// Direct dials what NoProxy names. If nil, Direct{}.
	Direct Dialer
	// Routes are tried in their order. May be empty.
	Routes []Route
	// Default dials what has no route. If nil, Direct{}.
	Default Dialer
}

// Route is a way to some addresses.
type Route struct {
	// Match is what goes this way. Required.
	Match *Patterns
	// Dialer dials it. Required; Direct{} for no proxy.
	Dialer Dialer
}

var _ Dialer = (*Router)(nil)

const opRouter = "router"

// DialContext dials address, a host:port with a number as its port, with the
// Dialer that it is routed to. That Dialer gets the address as it is. If there
// is none, the failure is an [*Error] of [PhaseConfig].
func (r *Router) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d, err := r.chooseDialer(address)
	if err != nil {
		return nil, &Error{Op: opRouter, Phase: PhaseConfig, Addr: address, Err: err}
	}
	return d.DialContext(ctx, network, address)
}

func (r *Router) chooseDialer(address string) (Dialer, error) {
	for i, route := range r.Routes {
		if route.Match == nil || isNil(route.Dialer) {
			return nil, fmt.Errorf("route %d of %d has no Match or no Dialer: both are required", i+1, len(r.Routes))
		}
	}
	t, err := routedTarget(address)
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(int(t.port))
	if r.NoProxy != nil && r.NoProxy.Bypass(t.host, port) {
		return forwardOrDirect(r.Direct), nil
	}
	for _, route := range r.Routes {
		if route.Match.match(t, port) {
			return route.Dialer, nil
		}
	}
	return forwardOrDirect(r.Default), nil
}

// routedTarget is parseTarget for an address that may be dialed without a
// proxy: it may have a zone, which no rule compares.
func routedTarget(address string) (target, error) {
	if host, port, err := net.SplitHostPort(address); err == nil {
		if addr, err := netip.ParseAddr(host); err == nil {
			address = net.JoinHostPort(addr.WithZone("").String(), port)
		}
	}
	return parseTarget("tcp", address)
}

// Patterns is a compiled list of hosts, networks and ports, for a [Route]. It
// never changes, so any number of goroutines may use it at once. The zero
// Patterns matches nothing.
type Patterns struct {
	rules *noproxy.Rules
}

// patternOptions are what a route needs beyond a no_proxy list: nothing is
// implied, and whatever is accepted matches something.
var patternOptions = noproxy.Options{Strict: true, NoImpliedLoopback: true, NetworkPort: true}

// ParsePatterns compiles patterns, which mean what they mean in a no_proxy
// list:
//
//	example.com         the name and every name below it
//	.example.com        the names below it, not the name
//	*.example.com       the same
//	10.0.0.1            the address, also as ::ffff:10.0.0.1
//	2001:db8::1         the address, with any zone
//	10.0.0.0/8          the addresses of the network
//	example.com:8443    the name and those below it, on this port
//	10.0.0.1:8443       the address, on this port
//	[2001:db8::1]:8443  the address, on this port
//	10.0.0.0/8:8443     the addresses of the network, on this port
//	*                   everything
//	*:8443              everything, on this port
//
// There are three differences: the last but two and the last are read, nothing
// is implied (localhost and loopback addresses match where they are listed),
// and a pattern that could match no host is an error, an [*Error] of
// [PhaseConfig] that joins one for each.
func ParsePatterns(patterns ...string) (*Patterns, error) {
	var errs []error
	if len(patterns) == 0 {
		errs = append(errs, errors.New("no pattern: at least one is required"))
	}
	for i, text := range patterns {
		if err := checkPattern(text); err != nil {
			errs = append(errs, fmt.Errorf("pattern %d%w", i+1, err))
		}
	}
	if len(errs) > 0 {
		return nil, &Error{Op: "patterns", Phase: PhaseConfig, Err: errors.Join(errs...)}
	}
	rules, err := patternOptions.Parse(strings.Join(patterns, ","))
	if err != nil {
		return nil, &Error{Op: "patterns", Phase: PhaseConfig, Err: err}
	}
	return &Patterns{rules}, nil
}

// PatternsFromRules returns Patterns that match what rules bypass, for a no_proxy
// list that names what goes one of several ways. The list is read as it was
// parsed: what [noproxy.Parse] implies, localhost and loopback addresses, matches.
// With nil rules nothing does.
func PatternsFromRules(rules *noproxy.Rules) *Patterns { return &Patterns{rules} }

// checkPattern returns what is wrong with one pattern, to be read after
// "pattern 1".
func checkPattern(text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New(": it is empty")
	}
	if strings.Contains(text, ",") {
		return errors.New(": it holds a comma: pass several patterns")
	}
	_, err := patternOptions.Parse(text)
	var entry *noproxy.EntryError
	if errors.As(err, &entry) {
		return fmt.Errorf(", %q: %s", sanitizeText(entry.Text), entry.Reason)
	}
	return err
}

// String returns the patterns, separated by commas.
func (p *Patterns) String() string {
	if p == nil {
		return ""
	}
	return p.rules.String()
}

func (p *Patterns) match(t target, port string) bool {
	return p.rules != nil && p.rules.Bypass(t.host, port)
}

// Swap is a Dialer that can be replaced while it is in use: by one with other
// credentials or another proxy, without a restart of what dials. A dial uses
// the Dialer that was stored when it began; dials under way and connections
// that exist stay as they are.
//
// The zero Swap holds no Dialer: its dials fail, and are not made directly. It
// is safe for concurrent use, and must not be copied after its first use.
type Swap struct {
	current atomic.Pointer[Dialer]
}

var _ Dialer = (*Swap)(nil)

// Store makes d the Dialer of the dials that begin from now on. After a nil d
// they fail.
func (s *Swap) Store(d Dialer) {
	if isNil(d) {
		s.current.Store(nil)
		return
	}
	s.current.Store(&d)
}

// Load returns the Dialer that was stored last, nil if there is none.
func (s *Swap) Load() Dialer {
	if d := s.current.Load(); d != nil {
		return *d
	}
	return nil
}

// DialContext dials with the Dialer that was stored last. If there is none,
// the failure is an [*Error] of [PhaseConfig].
func (s *Swap) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d := s.Load()
	if d == nil {
		return nil, &Error{Op: "swap", Phase: PhaseConfig, Addr: address, Err: errors.New("no Dialer is stored")}
	}
	return d.DialContext(ctx, network, address)
}
