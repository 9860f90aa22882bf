package bed

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/causewayproject/causeway/internal/test/pki"
)

// The credentials of the proxies. The password holds what URLs, the passwd
// format and shells give a meaning to.
const (
	ProxyUser     = "causeway"
	ProxyPassword = "p@ss:w/rd%+&'"
	// tinyproxy's configuration file takes no other characters in a password.
	tinyproxyPassword = "p.ss-w_rd"
)

const (
	squidPort      = 3128
	squidTLSPort   = 3129
	haproxyPort    = 3130
	haproxyTLSPort = 3131
	officePort     = 3140
	tinyproxyPort  = 8888
	dantePort      = 1080
	microsocksPort = 1081
)

// A proxyHost is a host of proxies, with an address on either side, and the address of
// the API server that they lead to.
type proxyHost struct {
	ns                   *Namespace
	name                 string // what the names of its proxies begin with
	dir                  string // has a folder for each of them
	inside, outside, api string
}

func (h proxyHost) newProxy(name string) *Proxy {
	name = h.name + name
	return &Proxy{host: h, name: name, dir: filepath.Join(h.dir, name), log: filepath.Join(h.ns.run.dir, name+".log")}
}

// A Proxy is a proxy on its host.
type Proxy struct {
	// CA signed the certificate of the port with TLS of squid and of haproxy. The
	// port asks for a client certificate of the cluster's authority, without
	// insisting: the log tells whether a client sent a certificate meant for the
	// API server.
	CA *pki.CA

	host        proxyHost
	name, dir   string
	url, tlsURL url.URL // that with TLS is empty without the port
	argv        []string
	log         string // path; by default that of its output
	errors      string // path of what it says when it does not start; "": its output
	process     *Process
}

// URL returns the proxy's URL with credentials.
func (p *Proxy) URL() *url.URL { return new(p.url) }

// TLSURL returns the URL of the port with TLS, with credentials.
func (p *Proxy) TLSURL() *url.URL { return new(p.tlsURL) }

// Log returns the lines of its log since the last start; see proxies.go.
func (p *Proxy) Log() ([]string, error) { return logLines(p.log) }

// Start starts the proxy after a Stop, and waits until it listens.
func (p *Proxy) Start(ctx context.Context) (err error) {
	if p.process, err = p.host.ns.start(p.name, p.argv...); err != nil {
		return err
	}
	for _, u := range []url.URL{p.url, p.tlsURL} {
		if u.Host == "" {
			continue
		}
		if err = p.host.ns.waitListening(ctx, p.process, u.Host); err != nil && p.errors != "" {
			err = fmt.Errorf("%w\n%s", err, tail(p.errors))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the proxy, if there is one, and all that goes through it.
func (p *Proxy) Stop() {
	if p != nil {
		p.process.Stop()
	}
}

func proxyURL(scheme, host string, port int) url.URL {
	return url.URL{
		Scheme: scheme,
		User:   url.UserPassword(ProxyUser, ProxyPassword),
		Host:   net.JoinHostPort(host, strconv.Itoa(port)),
	}
}

// writeFiles writes files to a folder, which it makes.
func writeFiles(dir string, mode os.FileMode, files map[string]string) error {
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("bed: %w", err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("bed: %w", err)
		}
	}
	return nil
}

// expandConfig returns the proxy's configuration, of files in the folder config.
func (p *Proxy) expandConfig(names ...string) string {
	api, _ := netip.ParseAddr(p.host.api) // dante wants it as a network of itself
	values := map[string]string{
		"dir":      p.dir,
		"address":  p.url.Host,
		"tls":      p.tlsURL.Host,
		"port":     p.url.Port(),
		"outside":  p.host.outside,
		"inside":   p.host.inside,
		"apinet":   netip.PrefixFrom(api, api.BitLen()).String(),
		"user":     ProxyUser,
		"password": tinyproxyPassword,
		"dante":    strconv.Itoa(dantePort),
		"squid":    net.JoinHostPort(p.host.inside, strconv.Itoa(squidPort)),

		"auth": squidAuth, "squiduser": squidUser,
	}
	var text strings.Builder
	for _, name := range names {
		text.WriteString(readConfig(name, values))
	}
	return text.String()
}

//go:embed config
var configs embed.FS

// readConfig returns a file of the folder config with its ${name}s filled in, and
// the ports of the API server and the sshd beside it.
func readConfig(name string, values map[string]string) string {
	text, err := configs.ReadFile("config/" + name)
	if err != nil {
		panic(err) // the names are constants
	}
	return os.Expand(string(text), func(name string) string {
		switch name {
		case "apiport":
			return strconv.Itoa(APIPort)
		case "sshport":
			return strconv.Itoa(sshPort)
		}
		return values[name]
	})
}
