package dialer

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"

	"github.com/causewayproject/causeway/noproxy"
)

// Router dials each address directly where NoProxy says so, and otherwise with Default.
//
// It resolves no names: a rule for a network does not match names that resolve to
// its addresses. Names are compared in their ASCII form and without regard to case.
// A dot at the end of a name is significant, as in package noproxy. A port is
// compared as a number.
//
// An address that can't be read is an error, and never becomes a direct connection. A
// Router is safe for concurrent use once its fields are set. The zero Router dials
// directly.
type Router struct {
	// NoProxy has the addresses for Direct. The rules of [noproxy.Parse] include
	// localhost and loopback addresses. If nil, all addresses go to Default, also
	// these.
	NoProxy *noproxy.Rules
	// Direct dials what NoProxy covers. If nil, it is Direct{}.
	Direct Dialer
	// Default dials what NoProxy does not cover. If nil, it is Direct{}.
	Default Dialer

	web Dialer // in place of Default for port 80; may be nil
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
	t, err := routedTarget(address)
	if err != nil {
		return nil, err
	}
	if r.NoProxy != nil && r.NoProxy.Bypass(t.host, strconv.Itoa(int(t.port))) {
		return forwardOrDirect(r.Direct), nil
	}
	if t.port == 80 && r.web != nil {
		return r.web, nil
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
