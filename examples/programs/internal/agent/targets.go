package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/follow"
	"github.com/causewayproject/causeway/tunnel"
)

// openTargets gives the agent the targets of --allow. If they are in a file, it is returned.
func openTargets(a *tunnel.Agent, allow []string) (*follow.Files, error) {
	path, err := follow.Path(allow)
	if err != nil {
		return nil, cli.Mistake("--allow: %v", err)
	}
	a.Targets.Allow = allow
	if path == "" {
		return nil, nil
	}
	targets := a.Targets // Run reads the Agent's
	files, err := follow.Open(func(texts [][]byte) (err error) {
		if targets.Allow, err = follow.Lines(texts[0]); err == nil {
			err = a.SetTargets(targets)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return err
	}, path)
	if err != nil {
		return nil, fmt.Errorf("--allow: %w", err)
	}
	a.Targets.Allow = targets.Allow
	return files, nil
}

// followTargets reads the file of --allow again, if there is one, until ctx ends.
func (f *flags) followTargets(ctx context.Context, log *slog.Logger) {
	follow.Run(ctx, follow.Every, func() {
		if f.targets == nil {
			return
		}
		path := strings.TrimPrefix(f.allow.String(), "file:")
		switch changed, err := f.targets.Check(); {
		case err != nil:
			log.Warn("targets: those before stay", "error", fmt.Errorf("--allow: %w", err))
		case changed:
			log.Info("targets", "file", path)
		}
	})
}
