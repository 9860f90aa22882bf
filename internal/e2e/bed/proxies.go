package bed

import (
	"context"
	"net/url"
	"path/filepath"

	"github.com/causewayproject/causeway/internal/test/pki"
)

const (
	squidAuth = "/usr/lib/squid/basic_ncsa_auth"
	squidUser = "proxy" // Debian's; squid refuses to serve as root
)

// startSquid starts squid. It lets an authenticated user CONNECT to the ports of
// the API server, sshd and dante, and nothing else. Its log has a line a finished
// tunnel, as
//
//	port=3129 tls=TLS/1.3 client-certificate=- status=200 CONNECT 192.0.2.10:6443 user=causeway
func startSquid(ctx context.Context, h proxyHost, clientCA *pki.CA) (*Proxy, error) {
	p := newSquid(h, "squid")
	p.CA = pki.NewCA("proxy authority")
	p.url, p.tlsURL = proxyURL("http", h.inside, squidPort), proxyURL("https", h.inside, squidTLSPort)
	cert, key := pki.PEM(p.CA.Server("proxy.test", h.inside))
	return p, p.startSquid(ctx, "squid.conf", map[string]string{
		"proxy.pem": string(cert) + string(key), "client-ca.crt": string(clientCA.CertPEM()),
	})
}

// startOffice starts the squid that stands between the API server's network and
// the rest of the world: with the rules of Debian's squid.conf, which let a CONNECT
// go only to port 443, and a password. Its URL is as the api namespace reaches it.
// Its log has a line a finished tunnel, as
//
//	client=192.0.2.10 status=200 CONNECT 203.0.113.2:443 user=causeway
func startOffice(ctx context.Context, h proxyHost) (*Proxy, error) {
	p := newSquid(h, "office")
	p.url = proxyURL("http", h.outside, officePort)
	return p, p.startSquid(ctx, "office.conf", map[string]string{})
}

// squid shares memory under names that another squid has too, and leaves it
// behind when it is killed: it gets a private folder for it.
const squidScript = `mount -t tmpfs tmpfs /dev/shm
exec "$2" -N -f "$1/squid.conf"`

func newSquid(h proxyHost, name string) *Proxy {
	p := h.newProxy(name)
	p.log, p.errors = filepath.Join(p.dir, "access.log"), filepath.Join(p.dir, "cache.log")
	p.argv = []string{"/bin/sh", "-e", "-c", squidScript, p.name, p.dir, programPath("squid")}
	return p
}

func (p *Proxy) startSquid(ctx context.Context, config string, files map[string]string) error {
	hash, err := hashPassword(ctx, ProxyPassword)
	if err != nil {
		return err
	}
	files["passwords"] = ProxyUser + ":" + hash + "\n"
	files["squid.conf"] = p.expandConfig(config, "squidcommon.conf")
	if err := writeFiles(p.dir, 0o755, files); err != nil {
		return err
	}
	if _, err := runOutput(ctx, "", "chown", "-R", squidUser, p.dir); err != nil {
		return err
	}
	return p.Start(ctx)
}

// startHAProxy starts haproxy in front of squid. HAProxy is no forward proxy: it
// never connects to what a CONNECT asks for. But it passes a CONNECT on to a proxy
// behind it, and speaks HTTP/2 to the client whatever the one behind speaks. So
// this is a real proxy with CONNECT over HTTP/2, which neither squid nor tinyproxy
// has, nor a stock nginx (no CONNECT at all). The credentials, the refusals and
// their headers are squid's. The port with TLS prefers h2.
//
// HAProxy passes on a half-close, also as END_STREAM. Squid does not:
// it ends the tunnel, as tinyproxy does. Its log has a line a finished tunnel, as
//
//	port=3131 tls=TLSv1.3 client-certificate=- status=200 CONNECT 192.0.2.10:6443 HTTP/2.0
func startHAProxy(ctx context.Context, h proxyHost, clientCA *pki.CA) (*Proxy, error) {
	p := h.newProxy("haproxy")
	p.CA = pki.NewCA("haproxy authority")
	p.url, p.tlsURL = proxyURL("http", h.inside, haproxyPort), proxyURL("https", h.inside, haproxyTLSPort)
	p.argv = []string{programPath("haproxy"), "-db", "-f", filepath.Join(p.dir, "haproxy.cfg")}
	cert, key := pki.PEM(p.CA.Server("proxy.test", h.inside))
	err := writeFiles(p.dir, 0o700, map[string]string{
		"proxy.pem":     string(cert) + string(key),
		"client-ca.crt": string(clientCA.CertPEM()),
		"haproxy.cfg":   p.expandConfig("haproxy.cfg"),
	})
	if err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

// startTinyproxy starts tinyproxy. It lets an authenticated user CONNECT to the
// ports of the API server and sshd. A tunnel leaves in its log
//
//	CONNECT   ... Request (file descriptor 5): CONNECT 192.0.2.10:6443 HTTP/1.1
//	CONNECT   ... Established connection to host "192.0.2.10" using file descriptor 6.
func startTinyproxy(ctx context.Context, h proxyHost) (*Proxy, error) {
	p := h.newProxy("tinyproxy")
	p.url = proxyURL("http", h.inside, tinyproxyPort)
	p.argv = []string{programPath("tinyproxy"), "-d", "-c", filepath.Join(p.dir, "tinyproxy.conf")}
	p.url.User = url.UserPassword(ProxyUser, tinyproxyPassword)
	if err := writeFiles(p.dir, 0o755, map[string]string{"tinyproxy.conf": p.expandConfig("tinyproxy.conf")}); err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

// startDante starts danted, a SOCKS5 server that asks for a user name and a
// password. Its log has among others a line a connection:
//
//	... pass(1): tcp/connect [: username%causeway@198.51.100.2.4711 ... 192.0.2.10.6443
func startDante(ctx context.Context, h proxyHost) (*Proxy, error) {
	p := h.newProxy("dante")
	p.url = proxyURL("socks5", h.inside, dantePort)
	p.log = filepath.Join(p.dir, "connections.log")
	p.errors = p.log
	p.argv = []string{"/bin/sh", "-e", "-c", danteScript, p.name, p.dir, programPath("danted")}
	if err := writeFiles(p.dir, 0o755, map[string]string{"danted.conf": p.expandConfig("danted.conf")}); err != nil {
		return nil, err
	}
	if err := writeUser(ctx, p.dir); err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

// Dante checks names against the system's users and offers no file of its own.
const danteScript = mountUser + `exec "$2" -f "$1/danted.conf" -p "$1/danted.pid"`

// startMicrosocks starts microsocks, a SOCKS5 server that asks for a user name and
// a password and connects wherever it is told to. Its log has a line a connection
// that it made, and none of a refused password:
//
//	client[4] 198.51.100.2: connected to 192.0.2.10:6443
func startMicrosocks(ctx context.Context, h proxyHost) (*Proxy, error) {
	p := h.newProxy("microsocks")
	p.url = proxyURL("socks5", h.inside, microsocksPort)
	p.argv = []string{programPath("microsocks"), "-i", h.inside, "-p", p.url.Port(), "-u", ProxyUser, "-P", ProxyPassword}
	return p, p.Start(ctx)
}
