package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/causewayproject/causeway/examples/programs/internal/follow"
	"github.com/causewayproject/causeway/tunnel"
)

// peersFile is the Membership of a file of --peers.
type peersFile struct {
	path  string
	files *follow.Files

	mu      sync.Mutex // guards the fields below
	peers   tunnel.StaticPeers
	changed chan struct{} // closed when peers change
}

func openPeers(path string) (f *peersFile, err error) {
	f = &peersFile{path: path, changed: make(chan struct{})}
	if f.files, err = follow.Open(f.take, path); err != nil {
		return nil, fmt.Errorf("--peers: %w", err)
	}
	return f, nil
}

func (f *peersFile) take(texts [][]byte) error {
	peers, err := follow.Lines(texts[0])
	if err == nil {
		err = checkServers(f.path, peers)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peers = peers
	close(f.changed)
	f.changed = make(chan struct{})
	return nil
}

// check reads the file again.
func (f *peersFile) check(log *slog.Logger) {
	switch changed, err := f.files.Check(); {
	case err != nil:
		log.Warn("addresses of peers: those before stay", "error", fmt.Errorf("--peers: %w", err))
	case changed:
		log.Info("addresses of peers", "file", f.path)
	}
}

// Watch implements [tunnel.Membership].
func (f *peersFile) Watch(ctx context.Context, set func(addresses []string)) error {
	for ctx.Err() == nil {
		f.mu.Lock()
		peers, changed := f.peers, f.changed
		f.mu.Unlock()
		these, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { peers.Watch(these, set) })
		select {
		case <-changed:
		case <-ctx.Done():
		}
		cancel()
		wg.Wait()
	}
	return ctx.Err()
}
