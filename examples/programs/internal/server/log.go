package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

const (
	refusalEvery = time.Minute
	maxRefusals  = 100 // lines in that time
)

// refusalLog writes one line a minute for the refusals of a kind and a source, and at
// most a hundred lines: a stranger can cause thousands of refusals a second. The
// metrics count all of them.
type refusalLog struct {
	log *slog.Logger

	mu       sync.Mutex // guards the fields below
	since    time.Time
	seen     map[refusalKey]bool // since then
	unlogged int
}

type refusalKey struct {
	source netip.Prefix
	kind   string
}

// refused is the hook Refused of the tunnel.
func (l *refusalLog) refused(remote net.Addr, err error) {
	kind, level := "", slog.LevelWarn
	if e := (*tunnel.Error)(nil); errors.As(err, &e) {
		if kind = e.Code.String(); e.Code == tunnel.CodeHeld {
			level = slog.LevelDebug // it looks for another replica
		}
	}
	l.write(level, "refused", remote, kind, "error", err)
}

// doorLog logs clients that got no connection. Strangers cannot use up the lines of
// known clients, which have a log of their own.
type doorLog struct{ strangers, clients refusalLog }

func newDoorLog(log *slog.Logger) *doorLog {
	return &doorLog{strangers: refusalLog{log: log}, clients: refusalLog{log: log}}
}

// failed is the hook Failed of the gateways.
func (l *doorLog) failed(err error) {
	var e *gateway.Error
	if !errors.As(err, &e) {
		return
	}
	r, kind := e.Request, string(e.Request.Door)+" "+string(e.Phase)
	if r.Client.Name == "" {
		l.strangers.write(slog.LevelWarn, "door failed", r.Credentials.Remote, kind, "door", r.Door, "phase", e.Phase, "error", e.Err)
		return
	}
	l.clients.write(slog.LevelWarn, "door failed", r.Credentials.Remote, fmt.Sprintf("%s %q %q", kind, r.Client.Name, r.Cluster),
		"door", r.Door, "phase", e.Phase, "client", r.Client.Name, "cluster", r.Cluster, "address", r.Address, "error", e.Err)
}

// write writes a line with args, if it is the first of its kind and source.
func (l *refusalLog) write(level slog.Level, text string, remote net.Addr, kind string, args ...any) {
	first, before := l.countRefusal(refusalKey{sourceOf(remote), kind}, time.Now())
	if before > 0 {
		l.log.Warn(text+" more than were logged", "count", before)
	}
	if first {
		l.log.Log(context.Background(), level, text, append([]any{"remote", remote.String()}, args...)...)
	}
}

// sourceOf returns the address of a client, or for IPv6 its network (/64), because one
// site has a whole network.
func sourceOf(remote net.Addr) netip.Prefix {
	ip, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return netip.Prefix{}
	}
	bits := 64
	if ip.Addr().Unmap().Is4() {
		bits = 32
	}
	prefix, _ := ip.Addr().Unmap().Prefix(bits)
	return prefix
}

// countRefusal reports whether the refusal is the first of its kind, and, when a new
// minute begins, how many were not logged in the last one.
func (l *refusalLog) countRefusal(key refusalKey, now time.Time) (first bool, before int) {
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
