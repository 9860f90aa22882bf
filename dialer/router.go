package dialer

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

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
	d, err := r.route(address)
	if err != nil {
		return nil, &Error{Op: opRouter, Phase: PhaseConfig, Addr: address, Err: err}
	}
	return d.DialContext(ctx, network, address)
}

func (r *Router) route(address string) (Dialer, error) {
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
