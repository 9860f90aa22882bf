package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// ssh runs a command on the host beside the API server, by a ProxyCommand.
func (c *cell) ssh(ctx context.Context, proxyCommand string, env ...string) error {
	host, err := c.bed.SSH.HostKey()
	if err != nil {
		return err
	}
	known := filepath.Join(c.dir, "known_hosts")
	if err := os.WriteFile(known, []byte(bed.APIIP+" "+host+"\n"), 0o644); err != nil {
		return err
	}
	argv := []string{"ssh", "-F", "none", "-i", c.key}
	for _, option := range []string{"BatchMode=yes", "IdentitiesOnly=yes", "IdentityAgent=none", "StrictHostKeyChecking=yes",
		"GlobalKnownHostsFile=none", "UserKnownHostsFile=" + known, "ProxyCommand=" + proxyCommand} {
		argv = append(argv, "-o", option)
	}
	return c.want(ctx, bed.Command{Argv: append(argv, bed.ProxyUser+"@"+bed.APIIP, "id -un"), Env: env}, bed.ProxyUser+"\n")
}

// sshNcat is the usual ProxyCommand.
func sshNcat(ctx context.Context, c *cell) error {
	if c.proxy == nil {
		host, port, _ := net.SplitHostPort(c.sni)
		return c.ssh(ctx, "ncat "+host+" "+port)
	}
	kind, _, _ := strings.Cut(c.proxy.Scheme, "+")
	return c.ssh(ctx, fmt.Sprintf("ncat --proxy '%s' --proxy-type %s --proxy-auth '%s:%s' %%h %%p",
		c.proxy.Host+c.proxy.Path, kind, cluster, password))
}

type proxyCommandInput struct {
	Proxy   hop
	H2      bool // nothing else will do
	Address string
}

const proxyCommandEnv = "CAUSEWAY_E2E_PROXY_COMMAND"

// sshDialer makes a ProxyCommand of our package.
func sshDialer(ctx context.Context, c *cell) error {
	input := proxyCommandInput{H2: c.h2, Address: c.sni}
	if c.proxy != nil {
		input.Proxy, input.Address = hop{c.proxy.String(), c.bed.Kube.CA.CertPEM()}, c.bed.SSH.Address()
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(input)
	if err != nil {
		return err
	}
	return c.ssh(ctx, self, bed.RoleEnv+"=proxy-command", "GORACE=atexit_sleep_ms=0", proxyCommandEnv+"="+string(text))
}

// proxyCommandRole joins its standard input and output to a connection.
func proxyCommandRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input proxyCommandInput
	if err := json.Unmarshal([]byte(os.Getenv(proxyCommandEnv)), &input); err != nil {
		return err
	}
	var d dialer.Dialer = dialer.Direct{}
	if input.Proxy.URL != "" {
		h2 := new(dialer.HTTP2)
		defer h2.Close()
		proxies, err := proxiesOf(h2, []hop{input.Proxy})
		if err != nil {
			return err
		}
		d = proxies[0]
	}
	var protocol string
	ctx = dialer.WithTrace(ctx, &dialer.Trace{Done: func(e dialer.Event) {
		if e.TLS != nil {
			protocol = e.TLS.NegotiatedProtocol
		}
	}})
	conn, err := d.DialContext(ctx, "tcp", input.Address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if input.H2 && protocol != "h2" {
		return fmt.Errorf("proxy-command: the proxy speaks %q", protocol)
	}
	go func() { // ends with the process
		io.Copy(conn, in)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		}
	}()
	_, err = io.Copy(out, conn)
	return err
}
