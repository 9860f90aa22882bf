package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/causewayproject/causeway/examples/programs/internal/follow"
	"github.com/causewayproject/causeway/tunnel"
)

// watcher looks for what commands have written to the state, and applies it to the
// connected agents; and for files that have changed.
type watcher struct {
	*program
	files []func() // look whether files have changed

	mu        sync.Mutex                 // guards the field below
	delivered map[tunnel.Identity]string // digest of the payloads that the agent was sent last
}

func newWatcher(p *program) *watcher {
	return &watcher{program: p, delivered: map[tunnel.Identity]string{}}
}

// payloads returns what an agent gets when it connects.
func (w *watcher) payloads(ctx context.Context, id tunnel.Identity) ([]tunnel.Payload, error) {
	list, err := w.state.payloads(ctx, id.Cluster)
	if err == nil {
		w.notePayloads(id, payloadDigest(list))
	}
	return list, err
}

// notePayloads reports whether the agent was sent other payloads before, and remembers
// these.
func (w *watcher) notePayloads(id tunnel.Identity, digest string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.delivered[id] != digest
	w.delivered[id] = digest
	return changed
}

func payloadDigest(list []tunnel.Payload) string {
	h := sha256.New()
	for _, p := range list {
		fmt.Fprintf(h, "%q %q\n", p.Name, p.Data)
	}
	return string(h.Sum(nil))
}

// add has check called now and then, before run is called.
func (w *watcher) add(check func()) { w.files = append(w.files, check) }

func (w *watcher) run(ctx context.Context, every time.Duration) {
	follow.Run(ctx, every, func() {
		for _, check := range w.files {
			check()
		}
		w.checkState(ctx)
	})
}

func (w *watcher) checkState(ctx context.Context) {
	for _, err := range []error{loadTickets(ctx, w.state, w.tickets), w.tickets.saveUses(ctx, w.state), w.joins.follow(ctx)} {
		if err != nil {
			w.log.Warn("state", "error", err)
		}
	}
	online := map[tunnel.Identity]bool{}
	for _, cluster := range w.server.Status().Clusters {
		for _, s := range cluster.Sessions {
			online[tunnel.Identity{Cluster: s.Cluster, Agent: s.Agent}] = true
		}
	}
	push := map[string][]tunnel.Payload{}
	for id := range online {
		list, err := w.state.payloads(ctx, id.Cluster)
		if err == nil && w.notePayloads(id, payloadDigest(list)) {
			push[id.Cluster] = list
		}
		if err != nil {
			w.log.Warn("state", "agent", id.String(), "error", err)
		}
	}
	for cluster, list := range push {
		for _, p := range list {
			if err := w.server.Push(ctx, cluster, p); err != nil {
				w.log.Warn("payload not confirmed", "cluster", cluster, "name", p.Name, "error", err)
			} else {
				w.log.Info("pushed", "cluster", cluster, "name", p.Name)
			}
		}
	}
	w.forgetOffline(online)
}

func (w *watcher) forgetOffline(online map[tunnel.Identity]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.delivered, func(id tunnel.Identity, _ string) bool { return !online[id] })
}
