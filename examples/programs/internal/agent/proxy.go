package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/internal/envfile"
	"github.com/causewayproject/causeway/internal/smallfile"
	"github.com/causewayproject/causeway/noproxy"
)

// proxySetting is what --proxy and --no-proxy say, or the variables of the same
// meaning in the file of the invitation. The zero value says nothing.
type proxySetting struct {
	url     string // or direct
	noProxy string
}

// The variables that causeway enroll writes.
const envProxy, envNoProxy = "CAUSEWAY_PROXY", "CAUSEWAY_NO_PROXY"

func (p proxySetting) isProxy() bool { return p.url != "" && p.url != "direct" }

// newDialer returns the Dialer of a setting that has a URL. The error names what has
// the setting, and no more of the URL than a scheme.
func (p proxySetting) newDialer(what string) (dialer.Dialer, error) {
	d, err := cli.NewDialer(p.url)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if p.noProxy == "" || !p.isProxy() {
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
	setting, err := readSetting(p.file)
	switch gone := errors.Is(err, fs.ErrNotExist); {
	case gone && p.dialer == nil:
		p.log.Warn("there is no file of the invitation: if it named the proxy, set --proxy", "file", p.file)
	case err != nil && !gone:
		return nil, fmt.Errorf("--invitation: %w", err)
	case setting.url == "" && p.setting.isProxy():
		if !gone { // it may be deleted when it was used
			p.log.Warn("the invitation names no proxy any more, and the last one stays: CAUSEWAY_PROXY=direct does without", "file", p.file)
		}
		return p.dialer, nil
	}
	if p.dialer != nil && (setting == p.setting || err != nil) {
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

// readSetting reads what an invitation's file says of the proxy.
func readSetting(file string) (proxySetting, error) {
	text, err := smallfile.Read(file, 1)
	if err != nil {
		return proxySetting{}, err
	}
	variables, err := readVariables(string(text))
	return proxySetting{variables[envProxy], variables[envNoProxy]}, err
}

func readVariables(text string) (map[string]string, error) {
	all := map[string]string{}
	err := envfile.Read(text, func(name, value string) error {
		all[name] = value
		return nil
	})
	return all, err
}
