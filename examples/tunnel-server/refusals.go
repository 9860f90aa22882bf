package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

const (
	refusalEvery = time.Minute
	maxRefusals  = 100 // lines in that time
)

// refusalLog writes one line in a minute for the refusals of a code and a source,
// and at most a hundred: anybody may cause thousands a second. The metrics count
// them all.
type refusalLog struct {
	log *slog.Logger

	mu       sync.Mutex // guards the fields below
	since    time.Time
	seen     map[refusalKey]bool // since then
	unlogged int
}

type refusalKey struct {
	source netip.Addr // IPv6: the network
	code   tunnel.Code
}

func (l *refusalLog) refused(remote net.Addr, err error) {
	key := refusalKey{source: sourceOf(remote)}
	if e := (*tunnel.Error)(nil); errors.As(err, &e) {
		key.code = e.Code
	}
	first, before := l.count(key, time.Now())
	if before > 0 {
		l.log.Warn("refused more than were logged", "count", before)
	}
	if !first {
		return
	}
	level := slog.LevelWarn
	if key.code == tunnel.CodeHeld {
		level = slog.LevelDebug // it looks for another replica
	}
	l.log.Log(context.Background(), level, "refused", "remote", remote.String(), "error", err)
}

// count reports whether the refusal is the first of its kind, and how many were
// not logged in the time before, if that is over.
func (l *refusalLog) count(key refusalKey, now time.Time) (first bool, before int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= refusalEvery {
		l.since, l.seen, before, l.unlogged = now, map[refusalKey]bool{}, l.unlogged, 0
	}
	if l.seen[key] || len(l.seen) == maxRefusals {
		l.unlogged++
		return false, before
	}
	l.seen[key] = true
	return true, before
}

func sourceOf(addr net.Addr) netip.Addr {
	a, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Addr{}
	}
	ip := a.Addr().Unmap()
	if ip.Is6() {
		network, _ := ip.Prefix(64)
		ip = network.Addr()
	}
	return ip
}
