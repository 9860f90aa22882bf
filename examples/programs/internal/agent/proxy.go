package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/noproxy"
)

// proxySetting is what --proxy and --no-proxy say, or the variables of the same
// meaning in the file of the invitation. The zero value says nothing.
type proxySetting struct {
	url     string // or direct
	noProxy string
}

// The variables that causeway enroll writes.
const (
	envProxy   = "CAUSEWAY_PROXY"
	envNoProxy = "CAUSEWAY_NO_PROXY"
)

// newDialer returns the Dialer of a setting that has a URL. The error names what has
// the setting, and no more of the URL than a scheme.
func (p proxySetting) newDialer(what string) (dialer.Dialer, error) {
	if p.url == "direct" {
		return dialer.Direct{}, nil
	}
	u, err := dialer.ParseURL(p.url)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	d, err := dialer.FromURL(u, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if p.noProxy == "" {
		return d, nil
	}
	return &dialer.Router{NoProxy: noproxy.Parse(p.noProxy), Direct: dialer.Direct{}, Default: d}, nil
}

// fileProxy dials through the proxy in the file of the invitation, as the file is at
// the time: a new password needs no restart. Without one there, environment dials. It
// is safe for concurrent use.
type fileProxy struct {
	file        string
	environment func() (dialer.Dialer, error) // read only without one in the file
	log         *slog.Logger

	mu      sync.Mutex    // guards the fields below
	setting proxySetting  // that was read last
	dialer  dialer.Dialer // of setting; nil before the first read
}

// DialContext is a tunnel.DialFunc.
func (p *fileProxy) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d, err := p.currentDialer()
	if err != nil {
		return nil, err
	}
	return d.DialContext(ctx, network, address)
}

func (p *fileProxy) currentDialer() (dialer.Dialer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := os.ReadFile(p.file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && p.dialer != nil:
		return p.dialer, nil // an invitation may be deleted when it was used
	case errors.Is(err, fs.ErrNotExist):
		text = nil
	case err != nil:
		return nil, fmt.Errorf("--invitation: %w", err)
	}
	variables := readVariables(string(text))
	setting := proxySetting{variables[envProxy], variables[envNoProxy]}
	if p.dialer != nil && setting == p.setting {
		return p.dialer, nil
	}
	newDialer := p.environment
	if setting.url != "" {
		newDialer = func() (dialer.Dialer, error) { return setting.newDialer(envProxy + " in " + p.file) }
	}
	d, err := newDialer()
	if err != nil {
		return nil, err
	}
	if setting.url != "" {
		p.log.Info("the invitation names the proxy", "file", p.file)
	}
	p.setting, p.dialer = setting, d
	return d, nil
}

// fromEnvironment returns the Dialer of HTTPS_PROXY and its like.
func fromEnvironment() (dialer.Dialer, error) {
	d, err := dialer.FromEnvironment()
	if err != nil {
		return nil, fmt.Errorf("the environment's proxy: %w; --proxy direct does without", err)
	}
	return d, nil
}

// readVariables returns what is in an environment file.
func readVariables(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		all[name] = unquote(value)
	}
	return all
}

// unquote takes off the quotes that an invitation may have around a value.
func unquote(text string) string {
	for _, quote := range []string{`"`, `'`} {
		if inner, ok := strings.CutPrefix(text, quote); ok {
			if inner, ok = strings.CutSuffix(inner, quote); ok {
				return inner
			}
		}
	}
	return text
}
