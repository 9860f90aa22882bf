package bed

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/causewayproject/causeway/internal/test/pki"
)

// The credentials of the proxies. The password holds what URLs, the passwd
// format and shells give a meaning to.
const (
	ProxyUser     = "causeway"
	ProxyPassword = "p@ss:w/rd%+&'"
)

const (
	squidPort    = 3128
	squidTLSPort = 3129
	squidAuth    = "/usr/lib/squid/basic_ncsa_auth"
	squidUser    = "proxy" // Debian's; squid refuses to serve as root
)

// A Squid is squid in the proxy namespace. It lets an authenticated user
// CONNECT to the ports of the API server, sshd and dante, and nothing else.
type Squid struct {
	// CA signed the certificate of the https_port. The port asks for a client
	// certificate of the cluster's authority, without insisting: the access
	// log tells whether a client sent a certificate meant for the API server.
	CA *pki.CA

	dir string
}

// URL returns the http proxy's URL with credentials.
func (s *Squid) URL() *url.URL { return proxyURL("http", squidPort) }

// TLSURL returns the https proxy's URL with credentials.
func (s *Squid) TLSURL() *url.URL { return proxyURL("https", squidTLSPort) }

func proxyURL(scheme string, port int) *url.URL {
	return &url.URL{
		Scheme: scheme,
		User:   url.UserPassword(ProxyUser, ProxyPassword),
		Host:   net.JoinHostPort(ProxyIP, strconv.Itoa(port)),
	}
}

// AccessLog returns the lines of the access log, one a finished tunnel, as
//
//	port=3129 tls=TLS/1.3 client-certificate=- status=200 CONNECT 192.0.2.10:6443 user=causeway
func (s *Squid) AccessLog() ([]string, error) { return logLines(s.accessLog()) }

func (s *Squid) accessLog() string { return filepath.Join(s.dir, "access.log") }
func (s *Squid) cacheLog() string  { return filepath.Join(s.dir, "cache.log") }

const squidConfig = `http_port ${proxy}:${port}
https_port ${proxy}:${tlsport} tls-cert=${dir}/proxy.crt tls-key=${dir}/proxy.key clientca=${dir}/client-ca.crt sslflags=CONDITIONAL_AUTH
visible_hostname proxy.test

auth_param basic program ${auth} ${dir}/passwords
auth_param basic children 2 startup=1 idle=1
auth_param basic realm test
acl authenticated proxy_auth REQUIRED
acl api port ${apiport} ${sshport} ${danteport}
acl CONNECT method CONNECT
http_access deny !CONNECT
http_access deny !api
http_access allow authenticated
http_access deny all

logformat tunnel port=%>lp tls=%ssl::>negotiated_version client-certificate=%ssl::>cert_subject status=%03>Hs %rm %ru user=%un
access_log stdio:${dir}/access.log tunnel
cache_log ${dir}/cache.log
pid_filename ${dir}/squid.pid
coredump_dir none
cache deny all
cache_mem 0
max_filedescriptors 1024
netdb_filename none
pinger_enable off
# The defaults have the client's name in them, which costs a lookup each.
url_rewrite_extras "%>a"
store_id_extras "%>a"
cache_effective_user ${user}
shutdown_lifetime 0 seconds
`

// squid shares memory under names that another squid has too, and leaves it
// behind when it is killed: it gets a private folder for it.
const squidScript = `mount -t tmpfs tmpfs /dev/shm
exec "$2" -N -f "$1/squid.conf"`

func startSquid(ctx context.Context, ns *Namespace, dir string, clientCA *pki.CA) (*Squid, error) {
	s := &Squid{dir: dir}
	if err := s.writeFiles(ctx, clientCA); err != nil {
		return nil, err
	}
	p, err := ns.start("squid", "/bin/sh", "-e", "-c", squidScript, "squid", dir, programPath("squid"))
	if err != nil {
		return nil, err
	}
	for _, port := range []int{squidPort, squidTLSPort} {
		if err := ns.waitListening(ctx, p, net.JoinHostPort(ProxyIP, strconv.Itoa(port))); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, tail(s.cacheLog()))
		}
	}
	return s, nil
}

func (s *Squid) writeFiles(ctx context.Context, clientCA *pki.CA) error {
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return fmt.Errorf("bed: squid: %w", err)
	}
	s.CA = pki.NewCA("proxy authority")
	if _, _, err := writePair(s.dir, "proxy", s.CA.Server("proxy.test", ProxyIP)); err != nil {
		return err
	}
	hash, err := hashPassword(ctx, ProxyPassword)
	if err != nil {
		return err
	}
	config := expandTemplate(squidConfig, map[string]string{
		"dir":       s.dir,
		"proxy":     ProxyIP,
		"port":      strconv.Itoa(squidPort),
		"tlsport":   strconv.Itoa(squidTLSPort),
		"apiport":   strconv.Itoa(APIPort),
		"sshport":   strconv.Itoa(sshPort),
		"danteport": strconv.Itoa(dantePort), // for a chain
		"auth":      squidAuth,
		"user":      squidUser,
	})
	for name, content := range map[string]string{
		"client-ca.crt": string(clientCA.CertPEM()),
		"passwords":     ProxyUser + ":" + hash + "\n",
		"squid.conf":    config,
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("bed: squid: %w", err)
		}
	}
	return chown(s.dir, squidUser)
}

// expandTemplate fills in the ${name}s of a configuration file.
func expandTemplate(text string, values map[string]string) string {
	return os.Expand(text, func(name string) string { return values[name] })
}

// chown gives a folder of files to the user that a server becomes.
func chown(dir, name string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return fmt.Errorf("bed: owner of %s: %w", dir, err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return fmt.Errorf("bed: user %s: %w", name, err)
	}
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, uid, -1)
	})
}
