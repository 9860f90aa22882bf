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

const officePort = 3140

// An Office is the squid that stands between the API server's network and the
// rest of the world: with the rules of Debian's squid.conf, which let a CONNECT
// go only to port 443, and a password.
type Office struct {
	ns      *Namespace
	dir     string
	process *Process
}

// URL returns the http proxy's URL with credentials, as the api namespace
// reaches it.
func (o *Office) URL() *url.URL {
	u := proxyURL("http", officePort)
	u.Host = o.address()
	return u
}

func (o *Office) address() string { return net.JoinHostPort(ProxyAPIIP, strconv.Itoa(officePort)) }

// AccessLog returns the lines of the access log since the last start, one a
// finished tunnel, as
//
//	client=192.0.2.10 status=200 CONNECT 203.0.113.2:443 user=causeway
func (o *Office) AccessLog() ([]string, error) {
	return logLines(filepath.Join(o.dir, "access.log"))
}

const officeConfig = `http_port ${address}
visible_hostname office.test
auth_param basic program ${auth} ${dir}/passwords
auth_param basic children 2 startup=1 idle=1
auth_param basic realm office
acl authenticated proxy_auth REQUIRED
acl SSL_ports port 443
acl Safe_ports port 80 21 443 70 210 1025-65535 280 488 591 777
http_access deny !Safe_ports
http_access deny CONNECT !SSL_ports
http_access allow authenticated
http_access deny all

logformat tunnel client=%>a status=%03>Hs %rm %ru user=%un
access_log stdio:${dir}/access.log tunnel
cache_log ${dir}/cache.log
pid_filename ${dir}/squid.pid
coredump_dir none
cache deny all
cache_mem 0
max_filedescriptors 1024
netdb_filename none
pinger_enable off
url_rewrite_extras "%>a"
store_id_extras "%>a"
cache_effective_user ${user}
shutdown_lifetime 0 seconds
`

func startOffice(ctx context.Context, ns *Namespace, dir string) (*Office, error) {
	o := &Office{ns: ns, dir: dir}
	if err := o.writeFiles(ctx); err != nil {
		return nil, err
	}
	return o, o.Start(ctx)
}

func (o *Office) writeFiles(ctx context.Context) error {
	if err := os.Mkdir(o.dir, 0o755); err != nil {
		return fmt.Errorf("bed: office: %w", err)
	}
	hash, err := hashPassword(ctx, ProxyPassword)
	if err != nil {
		return err
	}
	config := expandTemplate(officeConfig, map[string]string{
		"dir": o.dir, "address": o.address(), "auth": squidAuth, "user": squidUser,
	})
	for name, content := range map[string]string{
		"passwords":  ProxyUser + ":" + hash + "\n",
		"squid.conf": config,
	} {
		if err := os.WriteFile(filepath.Join(o.dir, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("bed: office: %w", err)
		}
	}
	return chown(o.dir, squidUser)
}

// Start starts the proxy after a Stop, and waits until it listens.
func (o *Office) Start(ctx context.Context) (err error) {
	o.process, err = o.ns.start("office", "/bin/sh", "-e", "-c", squidScript, "office", o.dir, programPath("squid"))
	if err != nil {
		return err
	}
	if err := o.ns.waitListening(ctx, o.process, o.address()); err != nil {
		return fmt.Errorf("%w\n%s", err, tail(filepath.Join(o.dir, "cache.log")))
	}
	return nil
}

// Stop ends the proxy and all that goes through it.
func (o *Office) Stop() { o.process.Stop() }
