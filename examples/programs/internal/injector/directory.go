package injector

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/causewayproject/causeway/proxyconfig"
)

// every is how often a directory is looked at.
const every = time.Second

// A directory has a file for each variable, or values of charts.
type directory string

// read returns an error if there is no proxy: that is a wrong directory or an empty
// Secret, not a cluster without a proxy.
func (d directory) read() (c proxyconfig.Config, err error) {
	dir := string(d)
	// The kubelet swaps this link: resolve it once, to read files of one version.
	if data, err := filepath.EvalSymlinks(filepath.Join(dir, "..data")); err == nil {
		dir = data
	}
	found := false
	values, err := os.ReadFile(filepath.Join(dir, "values"))
	switch {
	case err == nil:
		found = true
		if c, err = proxyconfig.ReadValues(values); err != nil {
			return proxyconfig.Config{}, fmt.Errorf("--config: values: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return proxyconfig.Config{}, fmt.Errorf("--config: %w", err)
	}
	for _, f := range []struct {
		name  string
		value *string
	}{{"HTTP_PROXY", &c.HTTPProxy}, {"HTTPS_PROXY", &c.HTTPSProxy}, {"NO_PROXY", &c.NoProxy}} {
		text, err := os.ReadFile(filepath.Join(dir, f.name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return proxyconfig.Config{}, fmt.Errorf("--config: %w", err)
		}
		found = true
		value := strings.TrimRight(string(text), "\r\n")
		if *f.value != "" && *f.value != value {
			return proxyconfig.Config{}, fmt.Errorf("--config: %s differs from values", f.name)
		}
		*f.value = value
	}
	switch {
	case !found:
		if _, err := os.ReadDir(string(d)); err != nil {
			return c, fmt.Errorf("--config: the folder can't be read: %w", err)
		}
		return c, fmt.Errorf("--config: none of HTTP_PROXY, HTTPS_PROXY, NO_PROXY and values is in %s", string(d))
	case strings.TrimSpace(c.HTTPProxy+c.HTTPSProxy) == "":
		return c, fmt.Errorf("--config: HTTP_PROXY and HTTPS_PROXY in %s are missing or empty: there is no proxy to put into pods", string(d))
	}
	return c, nil
}

// follow calls use for each change after config until ctx ends: once it has been
// the same for a second, so that what is being written is not taken up.
func (d directory) follow(ctx context.Context, config proxyconfig.Config, use func(proxyconfig.Config, error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	type state struct {
		config proxyconfig.Config
		err    string
	}
	used := state{config: config}
	last := used
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c, err := d.read()
		now := state{config: c}
		if err != nil {
			now.err = err.Error() // only the text is compared
		}
		if now == last && now != used {
			use(c, err)
			used = now
		}
		last = now
	}
}
