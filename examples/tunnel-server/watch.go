package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// watcher brings what the commands write to the agents that are connected.
type watcher struct {
	*program
	mu     sync.Mutex                 // guards the field below
	handed map[tunnel.Identity]string // digest of the payloads that the agent was handed last
}

func newWatcher(p *program) *watcher {
	return &watcher{program: p, handed: map[tunnel.Identity]string{}}
}

// payloads is what an agent gets when it connects.
func (w *watcher) payloads(ctx context.Context, id tunnel.Identity) ([]tunnel.Payload, error) {
	list, err := w.state.payloads(ctx, id.Cluster)
	if err == nil {
		w.note(id, digest(list))
	}
	return list, err
}

// note reports whether the agent has other payloads, and notes these.
func (w *watcher) note(id tunnel.Identity, digest string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.handed[id] != digest
	w.handed[id] = digest
	return changed
}

func digest(list []tunnel.Payload) string {
	h := sha256.New()
	for _, p := range list {
		fmt.Fprintf(h, "%q %q\n", p.Name, p.Data)
	}
	return string(h.Sum(nil))
}

func (w *watcher) run(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (w *watcher) look(ctx context.Context) {
	if err := setTickets(ctx, w.state, w.tickets); err != nil {
		w.log.Warn("state", "error", err)
	}
	online := map[tunnel.Identity]bool{}
	for _, cluster := range w.server.Status().Clusters {
		for _, s := range cluster.Sessions {
			online[tunnel.Identity{Cluster: s.Cluster, Agent: s.Agent}] = true
		}
	}
	push := map[string][]tunnel.Payload{}
	for id := range online {
		revoked, err := w.revoked(ctx, id)
		if err == nil && revoked {
			err = w.server.Revoke(ctx, id) // ends its sessions
		} else if err == nil {
			var list []tunnel.Payload
			if list, err = w.state.payloads(ctx, id.Cluster); err == nil && w.note(id, digest(list)) {
				push[id.Cluster] = list
			}
		}
		if err != nil {
			w.log.Warn("state", "agent", id.String(), "error", err)
		}
	}
	for cluster, list := range push {
		for _, p := range list {
			w.log.Info("pushed", "cluster", cluster, "name", p.Name, "error", w.server.Push(ctx, cluster, p))
		}
	}
	w.forget(online)
}

// revoked asks a state that does not tell.
func (w *watcher) revoked(ctx context.Context, id tunnel.Identity) (bool, error) {
	if _, tells := w.state.(follower); tells {
		return false, nil
	}
	return w.server.Store.Revoked(ctx, id)
}

func (w *watcher) forget(online map[tunnel.Identity]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.handed {
		if !online[id] {
			delete(w.handed, id)
		}
	}
}
