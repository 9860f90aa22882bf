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

const (
	tinyproxyPort = 8888
	// Its configuration file takes no other characters in a password.
	tinyproxyPassword = "p.ss-w_rd"
)

// A Tinyproxy is tinyproxy in the proxy namespace. It lets an authenticated
// user CONNECT to the ports of the API server and sshd.
type Tinyproxy struct {
	process *Process
}

// URL returns the http proxy's URL with credentials.
func (p *Tinyproxy) URL() *url.URL {
	u := proxyURL("http", tinyproxyPort)
	u.User = url.UserPassword(ProxyUser, tinyproxyPassword)
	return u
}

// Log returns the lines of its log. A tunnel leaves
//
//	CONNECT   ... Request (file descriptor 5): CONNECT 192.0.2.10:6443 HTTP/1.1
//	CONNECT   ... Established connection to host "192.0.2.10" using file descriptor 6.
func (p *Tinyproxy) Log() ([]string, error) { return logLines(p.process.log) }

const tinyproxyConfig = `Listen ${proxy}
Port ${port}
User nobody
Group nogroup
LogLevel Info
MaxClients 200
Timeout 600
ConnectPort ${apiport}
ConnectPort ${sshport}
BasicAuth ${user} ${password}
`

func startTinyproxy(ctx context.Context, ns *Namespace, dir string) (*Tinyproxy, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("bed: tinyproxy: %w", err)
	}
	config := expandTemplate(tinyproxyConfig, map[string]string{
		"proxy":    ProxyIP,
		"port":     strconv.Itoa(tinyproxyPort),
		"apiport":  strconv.Itoa(APIPort),
		"sshport":  strconv.Itoa(sshPort),
		"user":     ProxyUser,
		"password": tinyproxyPassword,
	})
	path := filepath.Join(dir, "tinyproxy.conf")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return nil, fmt.Errorf("bed: tinyproxy: %w", err)
	}
	p, err := ns.start("tinyproxy", programPath("tinyproxy"), "-d", "-c", path)
	if err != nil {
		return nil, err
	}
	return &Tinyproxy{p}, ns.waitListening(ctx, p, net.JoinHostPort(ProxyIP, strconv.Itoa(tinyproxyPort)))
}
