package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/follow"
	"github.com/causewayproject/causeway/tunnel"
)

// openTargets gives the agent the targets of --allow. If they are in a file, it is returned.
func openTargets(a *tunnel.Agent, allow []string) (*follow.File, error) {
	switch {
	case !slices.ContainsFunc(allow, func(v string) bool { return strings.HasPrefix(v, "file:") }):
		a.Targets.Allow = allow
		return nil, nil
	case len(allow) > 1:
		return nil, cli.Mistake("--allow: file:PATH has to be alone: the file has all patterns")
	}
	path := strings.TrimPrefix(allow[0], "file:")
	targets := a.Targets // Run reads the Agent's
	file, err := follow.Open(path, func(text []byte) (err error) {
		if targets.Allow, err = readLines(text); err == nil {
			err = a.SetTargets(targets)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("--allow: %w", err)
	}
	a.Targets.Allow = targets.Allow
	return file, nil
}

// readLines returns the patterns of a file, one a line. Empty lines and those that begin with
// "#" are left out. A file without a pattern is an error.
func readLines(text []byte) (patterns []string, err error) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			patterns = append(patterns, line)
		}
	}
	if patterns == nil {
		return nil, errors.New("there is no line with a pattern in it")
	}
	return patterns, nil
}
