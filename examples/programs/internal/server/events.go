package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/causewayproject/causeway/examples/programs/internal/limits"
	"github.com/causewayproject/causeway/examples/programs/internal/logs"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// events writes what happens to the log. The kinds of senders have lines of their own, so
// that one can't use up those of another. The metrics count all of it.
type events struct {
	log *slog.Logger
	// strangers are clients, agents and replicas without an identity: a hundred lines in
	// a minute, and never more than ten in a second.
	strangers logs.Sampler
	// known are failures of clients with an identity, and of other replicas.
	known logs.Sampler
	// sessions are those of agents and replicas.
	sessions logs.Sampler
	refusals doorRefusals
}

func newEvents(log *slog.Logger) *events {
	return &events{
		log:       log,
		strangers: logs.Sampler{Log: log, Lines: rate.NewLimiter(rate.Every(time.Minute/100), 8)},
		known:     logs.Sampler{Log: log, Lines: rate.NewLimiter(10, 100)},
		sessions:  logs.Sampler{Log: log, PerKind: 20},
		refusals:  doorRefusals{last: map[string]tunnel.Refusals{}},
	}
}

// start has the sums written until stop is called.
func (v *events) start() (stop func()) {
	stops := []func(){v.strangers.Start(), v.known.Start(), v.sessions.Start()}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// refused is the hook Refused of the tunnel.
func (v *events) refused(remote net.Addr, err error) {
	reason, level := "", slog.LevelWarn
	if e, ok := errors.AsType[*tunnel.Error](err); ok {
		switch reason = e.Code.String(); e.Code {
		case tunnel.CodeHeld:
			level = slog.LevelDebug // it looks for another replica
		case tunnel.CodeTokenUnknown: // only the log says which of a few reasons it is
			reason += ": " + rootCause(e).Error()
		}
	}
	v.strangers.Write(level, "refused", limits.SourceOf(remote), reason, "remote", remote.String(), "error", err)
}

// rootCause returns the last error that err wraps.
func rootCause(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// doorHooks are the hooks of the Gateway of a listener.
func (v *events) doorHooks(door string) gateway.Hooks {
	return gateway.Hooks{
		Ended:  func(r gateway.Request, e gateway.Ended) { v.doorEnded(door, r, e) },
		Failed: func(err error) { v.doorFailed(door, err) },
	}
}

func (v *events) doorEnded(door string, r gateway.Request, e gateway.Ended) {
	if !v.log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	a := newAccess(door, r)
	if a.client != "" {
		v.log.Info("access", a.endedAttrs(e)...)
		return
	}
	v.strangers.Write(slog.LevelInfo, "access", limits.SourceOf(a.remote), door+" "+a.cluster, a.endedAttrs(e)...)
}

func (v *events) doorFailed(door string, err error) {
	e, ok := errors.AsType[*gateway.Error](err)
	if !ok {
		return
	}
	a := newAccess(door, e.Request)
	if a.client != "" {
		v.clientFailed(a, e.Phase, e.Err)
		return
	}
	if e.Phase != gateway.PhaseDial && e.Phase != gateway.PhaseRelay { // the tunnel counts those
		v.refusals.record(door, e.Phase, a.remote, e.Err)
		a.cluster, a.target = "", "" // a stranger chose them
	}
	v.strangers.Write(slog.LevelWarn, "door failed", limits.SourceOf(a.remote), a.failureReason(e.Phase, e.Err), a.failedAttrs(e.Phase, e.Err)...)
}

// clientFailed writes a line about a client with an identity, or of a --forward listener.
func (v *events) clientFailed(a access, phase gateway.Phase, err error) {
	v.known.Write(slog.LevelWarn, "door failed", a.client, a.failureReason(phase, err), a.failedAttrs(phase, err)...)
}

// access is what a client asked for.
type access struct {
	door, client, cluster, target string
	remote                        net.Addr
}

func newAccess(door string, r gateway.Request) access {
	return access{door: door, client: r.Client.Name, cluster: r.Cluster, target: r.Address, remote: r.Credentials.Remote}
}

// failureReason is what tells the lines of a client's failures apart.
func (a *access) failureReason(phase gateway.Phase, err error) string {
	reason := strings.TrimSpace(fmt.Sprint(a.door, " ", phase, " ", a.cluster))
	if e, ok := errors.AsType[*tunnel.Error](err); ok {
		reason += ": " + e.Code.String()
	}
	if e, ok := errors.AsType[*limits.Error](err); ok {
		reason += ": " + e.Kind + " " + e.Limit
	}
	return reason
}

func (a *access) attrs() []any {
	return append(make([]any, 0, 12), slog.String("remote", a.remote.String()), slog.String("door", a.door),
		slog.String("client", a.client), slog.String("cluster", a.cluster), slog.String("target", a.target))
}

func (a *access) endedAttrs(e gateway.Ended) []any {
	to, _ := e.Target.(tunnel.Addr)
	attrs := append(a.attrs(), slog.String("agent", to.Agent), slog.String("replica", to.Replica), slog.String("peer", to.Peer),
		slog.Int64("bytesIn", e.In), slog.Int64("bytesOut", e.Out), slog.Duration("duration", e.Took))
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	return attrs
}

func (a *access) failedAttrs(phase gateway.Phase, err error) []any {
	attrs := append(a.attrs(), slog.String("phase", string(phase)), slog.Any("error", err))
	switch e, ok := errors.AsType[*tunnel.Error](err); {
	case ok:
		attrs = append(attrs, slog.String("side", string(e.Code.Side())))
	case phase == gateway.PhaseLimit:
		attrs = append(attrs, slog.String("side", string(tunnel.SidePolicy)))
	}
	return attrs
}

// tunnelHooks are the hooks of the tunnel's server.
func (v *events) tunnelHooks() tunnel.Hooks {
	return tunnel.Hooks{
		Connected: func(s tunnel.SessionInfo) {
			v.sessions.Write(slog.LevelInfo, "connected", agentName(s.Cluster, s.Agent), "",
				"cluster", s.Cluster, "agent", s.Agent, "replica", s.Replica, "session", s.ID, "remote", s.Remote)
		},
		Disconnected: func(s tunnel.SessionInfo, err error) {
			v.sessions.Write(slog.LevelInfo, "disconnected", agentName(s.Cluster, s.Agent), "",
				"cluster", s.Cluster, "agent", s.Agent, "replica", s.Replica, "session", s.ID, "remote", s.Remote,
				"duration", time.Since(s.Since), "dials", s.Dials, "failed", s.Failed, "bytesIn", s.BytesIn, "bytesOut", s.BytesOut, "error", err)
		},
		Refused: v.refused,
		Enrolled: func(id tunnel.Identity) {
			v.sessions.Write(slog.LevelInfo, "enrolled", agentName(id.Cluster, ""), "", "cluster", id.Cluster, "agent", id.Agent)
		},
		Renewed: func(id tunnel.Identity, until time.Time) {
			v.sessions.Write(slog.LevelInfo, "renewed", agentName(id.Cluster, id.Agent), "", "cluster", id.Cluster, "agent", id.Agent, "until", until)
		},
		Delivered: func(id tunnel.Identity, name string, err error) {
			source := agentName(id.Cluster, id.Agent)
			if err != nil {
				v.sessions.Write(slog.LevelWarn, "payload not confirmed", source, name, "cluster", id.Cluster, "agent", id.Agent, "name", name, "error", err)
				return
			}
			v.sessions.Write(slog.LevelInfo, "payload", source, name, "cluster", id.Cluster, "agent", id.Agent, "name", name)
		},
		PeerConnected: func(name string) { v.sessions.Write(slog.LevelInfo, "peer connected", name, "", "peer", name) },
		PeerDisconnected: func(name string, err error) {
			v.sessions.Write(slog.LevelInfo, "peer disconnected", name, "", "peer", name, "error", err)
		},
		PeerFailed: func(address string, err error) {
			v.known.Write(slog.LevelWarn, "peer failed", address, "", "address", address, "error", err)
		},
	}
}

func agentName(cluster, agent string) string { return cluster + "/" + agent }
