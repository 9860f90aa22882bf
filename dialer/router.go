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

	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/noproxy"
)

// Router dials each address with the first of these that applies:
//
//  1. Direct, where NoProxy says so.
//  2. The Dialer of the first of Routes whose Match has the address.
//  3. Default.
//
// It resolves no names: a route for a network does not match names that resolve to
// its addresses. Names are compared in their ASCII form and without regard to case.
// A dot at the end of a name is significant, as in package noproxy. A port is
// compared as a number.
//
// An address that can't be read is an error, and so is a route without a Match or a
// Dialer, wherever it is in the list. Neither becomes a direct connection. A Router
// is safe for concurrent use once its fields are set. The zero Router dials directly.
type Router struct {
	// NoProxy has the addresses for Direct. The rules of [noproxy.Parse] include
	// localhost and loopback addresses, whatever Routes say about them. If nil, all
	// addresses go to Routes and Default, also these.
	NoProxy *noproxy.Rules
	// Direct dials what NoProxy covers. If nil, it is Direct{}.
	Direct Dialer
	// Routes are tried in their order. May be empty.
	Routes []Route
	// Default dials what no route matches. If nil, it is Direct{}.
	Default Dialer
}

// Route is a Dialer for some addresses.
type Route struct {
	// Match has the addresses. Required.
	Match *Patterns
	// Dialer dials them. Required; Direct{} means no proxy.
	Dialer Dialer
}

var _ Dialer = (*Router)(nil)

const opRouter = "router"

// DialContext dials address, a host:port with a number as its port. The chosen
// Dialer gets the address unchanged, and its error is returned. If none can be
// chosen, the error is an [*Error] of [PhaseConfig].
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

// routedTarget is parseTarget for an address that may be dialed without a proxy. Such
// an address may have a zone, which no rule compares.
func routedTarget(address string) (target, error) {
	if host, port, err := net.SplitHostPort(address); err == nil {
		if addr, err := netip.ParseAddr(host); err == nil {
			address = net.JoinHostPort(addr.WithZone("").String(), port)
		}
	}
	return parseTarget("tcp", address)
}

// Patterns is a compiled list of hosts, networks and ports, for a [Route]. It never
// changes, so it is safe for concurrent use. The zero Patterns matches nothing.
type Patterns struct {
	rules *noproxy.Rules
}

// patternOptions are how patterns differ from a no_proxy list: nothing is implied,
// and each pattern matches something.
var patternOptions = noproxy.Options{Strict: true, NoImpliedLoopback: true, NetworkPort: true}

// ParsePatterns compiles patterns, which are like items of a no_proxy list:
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
// There are three differences from no_proxy: networks and * may have a port,
// localhost and loopback addresses match only if they are listed, and a pattern that
// can match no host is an error. The error is an [*Error] of [PhaseConfig] that joins
// one for each such pattern.
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
		return fmt.Errorf(", %q: %s", printable.Text(entry.Text, maxText), entry.Reason)
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

// Swap is a Dialer that can be replaced while it is in use, for example when
// credentials change. A dial uses the Dialer that was stored when it began. Replacing
// it has no effect on dials that have begun, nor on connections.
//
// The zero Swap has no Dialer: its dials fail, they are not made directly. A Swap is
// safe for concurrent use, and must not be copied after its first use.
type Swap struct {
	current atomic.Pointer[Dialer]
}

var _ Dialer = (*Swap)(nil)

// Store makes d the Dialer of all dials that begin later. If d is nil, they fail.
func (s *Swap) Store(d Dialer) {
	if isNil(d) {
		s.current.Store(nil)
		return
	}
	s.current.Store(&d)
}

// Load returns the Dialer that was stored last, or nil.
func (s *Swap) Load() Dialer {
	if d := s.current.Load(); d != nil {
		return *d
	}
	return nil
}

// DialContext dials with the Dialer that was stored last, and returns its error. If
// there is no Dialer, the error is an [*Error] of [PhaseConfig].
func (s *Swap) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d := s.Load()
	if d == nil {
		return nil, &Error{Op: "swap", Phase: PhaseConfig, Addr: address, Err: errors.New("no Dialer is stored: call Store first")}
	}
	return d.DialContext(ctx, network, address)
}
