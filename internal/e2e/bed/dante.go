package bed

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
)

const dantePort = 1080

// A Dante is danted in the proxy namespace, a SOCKS5 server that asks for a
// user name and a password.
type Dante struct {
	dir string
}

// URL returns the proxy's URL with credentials.
func (d *Dante) URL() *url.URL { return proxyURL("socks5", dantePort) }

// Log returns the lines of its log, among them one a connection:
//
//	... pass(1): tcp/connect [: username%causeway@198.51.100.2.4711 ... 192.0.2.10.6443
func (d *Dante) Log() ([]string, error) { return logLines(d.logPath()) }

func (d *Dante) logPath() string { return filepath.Join(d.dir, "connections.log") }

const danteConfig = `logoutput: ${dir}/connections.log
internal: ${proxy} port = ${port}
external: ${outside}
user.privileged: root
user.unprivileged: nobody
clientmethod: none
socksmethod: username

client pass {
    from: 0/0 to: 0/0
    log: error
}
socks pass {
    from: 0/0 to: ${api}/32 port = ${apiport}
    command: connect
    log: error connect disconnect
}
socks pass {
    from: 0/0 to: ${api}/32 port = ${sshport}
    command: connect
    log: error connect disconnect
}
socks block {
    from: 0/0 to: 0/0
    log: error connect
}
`

// Dante checks names against the system's users and offers no file of its own.
const danteScript = mountUser + `exec "$2" -f "$1/danted.conf" -p "$1/danted.pid"`

func startDante(ctx context.Context, ns *Namespace, dir string) (*Dante, error) {
	d := &Dante{dir: dir}
	if err := d.writeFiles(ctx); err != nil {
		return nil, err
	}
	p, err := ns.start("danted", "/bin/sh", "-e", "-c", danteScript, "danted", dir, programPath("danted"))
	if err != nil {
		return nil, err
	}
	if err := ns.waitListening(ctx, p, net.JoinHostPort(ProxyIP, strconv.Itoa(dantePort))); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, tail(d.logPath()))
	}
	return d, nil
}

func (d *Dante) writeFiles(ctx context.Context) error {
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		return fmt.Errorf("bed: dante: %w", err)
	}
	config := expandTemplate(danteConfig, map[string]string{
		"dir":     d.dir,
		"proxy":   ProxyIP,
		"port":    strconv.Itoa(dantePort),
		"outside": ProxyAPIIP,
		"api":     APIIP,
		"apiport": strconv.Itoa(APIPort),
		"sshport": strconv.Itoa(sshPort),
	})
	if err := os.WriteFile(filepath.Join(d.dir, "danted.conf"), []byte(config), 0o644); err != nil {
		return fmt.Errorf("bed: dante: %w", err)
	}
	return writeUser(ctx, d.dir)
}
