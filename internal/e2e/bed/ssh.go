package bed

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	sshPort      = 22
	jumpHostPort = 2222
	jumpDynamic  = 1082 // for ssh -D, in the client namespace
)

// An SSH is an sshd beside the API server, and a jump host: an sshd in the
// proxy namespace with an `ssh -D` in the client namespace, whose SOCKS5 server
// asks for no password: only clients with the key reach its port.
type SSH struct {
	dir      string
	jumpHost *Process
}

// Address returns the host:port of the sshd beside the API server. It sends its
// banner, a line, as soon as it is connected to.
func (s *SSH) Address() string { return net.JoinHostPort(APIIP, strconv.Itoa(sshPort)) }

// URL returns the URL of the SOCKS5 server.
func (s *SSH) URL() *url.URL {
	return &url.URL{Scheme: "socks5", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(jumpDynamic))}
}

// AuthorizedKeys is the path of the file of further keys that may log in as
// ProxyUser, its owner. It is empty when the bed starts.
func (s *SSH) AuthorizedKeys() string { return filepath.Join(s.dir, "authorized_keys") }

// HostKey returns the public key of either sshd, as known_hosts has it after
// the host.
func (s *SSH) HostKey() (string, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, "host.pub"))
	if err != nil {
		return "", fmt.Errorf("bed: ssh: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Log returns the lines of the jump host's log, among them one a connection:
//
//	debug1: server_request_direct_tcpip: originator 127.0.0.1 port 4711, target 192.0.2.10 port 6443
func (s *SSH) Log() ([]string, error) { return logLines(s.jumpHost.log) }

// sshd wants a folder in /run, which Debian makes when it starts the service.
const sshdScript = mountUser + `mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
config=$2
shift 2
exec "$@" -D -e -f "$config"`

func startSSH(ctx context.Context, n *Network, dir string) (*SSH, error) {
	s := &SSH{dir: dir}
	if err := s.writeFiles(ctx); err != nil {
		return nil, err
	}
	// With -r sshd forks for each connection, without a new start of itself: the
	// banners need that.
	if _, err := s.startSSHD(ctx, n.API, "sshd", s.Address(), "-r"); err != nil {
		return nil, err
	}
	var err error
	jump := net.JoinHostPort(ProxyIP, strconv.Itoa(jumpHostPort))
	if s.jumpHost, err = s.startSSHD(ctx, n.Proxy, "jumphost", jump); err != nil {
		return nil, err
	}
	return s, s.startDynamic(ctx, n.Client)
}

func (s *SSH) startSSHD(ctx context.Context, ns *Namespace, name, address string, flags ...string) (*Process, error) {
	argv := append([]string{"/bin/sh", "-e", "-c", sshdScript, name, s.dir, filepath.Join(s.dir, name+".conf"), programPath("sshd")}, flags...)
	p, err := ns.start(name, argv...)
	if err != nil {
		return nil, err
	}
	return p, ns.waitListening(ctx, p, address)
}

// startDynamic starts ssh -D where the client is, so that what the client says
// to its SOCKS5 server crosses the link inside SSH.
func (s *SSH) startDynamic(ctx context.Context, ns *Namespace) error {
	argv := []string{programPath("ssh"), "-N", "-D", s.URL().Host, "-F", "none",
		"-i", filepath.Join(s.dir, "client"), "-p", strconv.Itoa(jumpHostPort)}
	for _, option := range []string{
		"BatchMode=yes",
		"ExitOnForwardFailure=yes",
		"IdentitiesOnly=yes",
		"IdentityAgent=none",
		"StrictHostKeyChecking=yes",
		"GlobalKnownHostsFile=none",
		"UserKnownHostsFile=" + filepath.Join(s.dir, "known_hosts"),
	} {
		argv = append(argv, "-o", option)
	}
	p, err := ns.start("ssh", append(argv, ProxyUser+"@"+ProxyIP)...)
	if err != nil {
		return err
	}
	return ns.waitListening(ctx, p, s.URL().Host)
}

func (s *SSH) writeFiles(ctx context.Context) error {
	if err := writeFiles(s.dir, 0o755, nil); err != nil {
		return err
	}
	if err := writeUser(ctx, s.dir); err != nil {
		return err
	}
	for _, name := range []string{"host", "client"} {
		if _, err := runOutput(ctx, "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", filepath.Join(s.dir, name)); err != nil {
			return err
		}
	}
	host, err := os.ReadFile(filepath.Join(s.dir, "host.pub"))
	if err != nil {
		return fmt.Errorf("bed: ssh: %w", err)
	}
	err = writeFiles(s.dir, 0o755, map[string]string{
		"known_hosts":   fmt.Sprintf("[%s]:%d %s", ProxyIP, jumpHostPort, host),
		"sshd.conf":     s.configText(APIIP, sshPort, "QUIET"),
		"jumphost.conf": s.configText(ProxyIP, jumpHostPort, "DEBUG1"), // less does not tell of connections
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.AuthorizedKeys(), nil, 0o600); err != nil {
		return fmt.Errorf("bed: ssh: %w", err)
	}
	return os.Chown(s.AuthorizedKeys(), proxyUID, proxyGID)
}

// configText is that of one of the two, which differ in where they listen and what they
// log.
func (s *SSH) configText(address string, port int, level string) string {
	return readConfig("sshd.conf", map[string]string{"api": APIIP, "dir": s.dir, "address": address, "port": strconv.Itoa(port), "level": level})
}
