package egress

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/examples/programs/internal/logs"
	"github.com/causewayproject/causeway/examples/programs/internal/metrics"
	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/internal/smallfile"
	"github.com/causewayproject/causeway/tunnel/egress"
	"github.com/causewayproject/causeway/tunnel/gateway"
	"github.com/causewayproject/causeway/tunnel/prometheus"
)

const serveLong = `Runs beside a kube-apiserver: an HTTP proxy on a unix socket that leads to CLUSTER through a
gateway of the tunnel's server (its --connect or --connect-tls). Only the user that it runs as
can open the socket. Beside the socket it writes the EgressSelectorConfiguration that names it.

The credentials are files of one directory, such as a mounted Secret. They are read anew for
each connection:

  username, password  a ticket; without username it is CLUSTER
  token               a ServiceAccount's token; the user is CLUSTER
  tls.crt, tls.key    a client certificate, at an https gateway
  ca.crt              the authority of an https gateway; without it the system's

It needs no right in any cluster, and never connects to a target directly.`

func serveCommand() *cobra.Command {
	var r relay
	var address, dir, health string
	var log logs.Flags
	cmd := &cobra.Command{
		Use:     "serve CLUSTER",
		Short:   "run the sidecar: a proxy on a unix socket that leads to CLUSTER",
		Long:    serveLong,
		Example: "  causeway egress serve default/prod --gateway https://tunnel.example.com:3129 --credentials /etc/kubernetes/causeway-egress --dir /run/causeway-egress/socket",
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := command.Require(cmd, "gateway", "credentials", "dir"); err != nil {
				return err
			}
			if err := egress.CheckGateway(address); err != nil {
				return cli.Mistake("--gateway: %v", err)
			}
			r.gateway, _ = url.Parse(address) // as CheckGateway has
			r.cluster, r.log = args[0], log.New(cmd.ErrOrStderr())
			r.failures.Log, r.failures.PerKind = r.log, 10
			return r.run(cmd.Context(), dir, health)
		},
	}
	set := cmd.Flags()
	set.StringVar(&address, "gateway", "", "`URL` of the gateway, http or https, without credentials")
	set.StringVar(&r.credentials, "credentials", "", "`directory` with the files of the credentials")
	set.StringVar(&dir, "dir", "", "`directory` for "+egress.SocketName+" and "+egress.ConfigName)
	set.StringVar(&health, "health", "", "`address` of /healthz and /metrics; empty for none")
	log.Add(set)
	return cmd
}

// relay leads to a cluster through a gateway.
type relay struct {
	gateway     *url.URL
	cluster     string
	credentials string // directory
	log         *slog.Logger
	failures    logs.Sampler
}

// run serves until ctx ends.
func (r *relay) run(ctx context.Context, dir, health string) error {
	socket, err := filepath.Abs(filepath.Join(dir, egress.SocketName))
	if err != nil {
		return cli.Mistake("--dir: %v", err)
	}
	l, err := cli.ListenUnix(ctx, socket)
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	if err := writeConfiguration(socket); err != nil {
		return errors.Join(fmt.Errorf("--dir: %w", err), l.Close())
	}
	defer r.failures.Start()()
	g := &gateway.Gateway{
		Authenticate: func(context.Context, gateway.Credentials) (gateway.Identity, error) {
			return gateway.Identity{Name: "kube-apiserver", Cluster: r.cluster}, nil
		},
		Dial:  func(ctx context.Context, q gateway.Request) (net.Conn, error) { return r.dial(ctx, q.Address) },
		Hooks: gateway.Hooks{Failed: r.failed},
	}
	counted := &prometheus.Gateway{Status: g.Status}
	g.Hooks = counted.Hooks(g.Hooks)
	r.log.Info("listening", "socket", socket, "gateway", r.gateway.String(), "cluster", r.cluster)
	stop, err := cli.StartPage(ctx, r.log, "health", health, metrics.Mux(metrics.Handler(nil, counted))) // until the last connection has ended
	if err != nil {
		return errors.Join(fmt.Errorf("--health: %w", err), l.Close())
	}
	return errors.Join(g.ServeConnect(ctx, l), stop())
}

// failed writes a line; kube-apiserver may fail a thousand times in a second.
func (r *relay) failed(err error) {
	if e, ok := errors.AsType[*gateway.Error](err); ok {
		r.failures.Write(slog.LevelWarn, "failed", "", string(e.Phase), "phase", string(e.Phase), "target", e.Request.Address, "error", e.Err)
	}
}

// writeConfiguration writes the EgressSelectorConfiguration beside the socket.
func writeConfiguration(socket string) error {
	text, err := egress.Configuration(socket)
	path := filepath.Join(filepath.Dir(socket), egress.ConfigName)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o644)
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

const (
	redialFor   = 3 * time.Second
	redialAfter = 100 * time.Millisecond
)

// dial asks the gateway for a target. A gateway that gave no answer is asked again for a
// while: a replica that ends leaves a moment in which its address leads nowhere. Its answer
// is final.
func (r *relay) dial(ctx context.Context, target string) (net.Conn, error) {
	for until := time.Now().Add(redialFor); ; {
		conn, err := r.dialOnce(ctx, target)
		var failed *dialer.Error
		if err == nil || !errors.As(err, &failed) || failed.Status != 0 || failed.Phase == dialer.PhaseConfig || failed.Phase == dialer.PhaseAuth || time.Now().After(until) {
			return conn, err
		}
		if !backoff.Sleep(ctx, redialAfter) {
			return nil, err
		}
	}
}

func (r *relay) dialOnce(ctx context.Context, target string) (net.Conn, error) {
	proxy, config, err := r.readCredentials()
	if err != nil {
		return nil, fmt.Errorf("--credentials: %w", err)
	}
	d, err := dialer.FromURL(proxy, &dialer.Options{TLSConfig: config})
	if err != nil {
		return nil, err
	}
	return d.DialContext(ctx, "tcp", target)
}

// readCredentials returns the gateway with what is in the directory. Files may be missing.
func (r *relay) readCredentials() (*url.URL, *tls.Config, error) {
	var files [6][]byte
	for i, name := range []string{"username", "password", "token", "tls.crt", "tls.key", "ca.crt"} {
		var err error
		if files[i], err = smallfile.Read(filepath.Join(r.credentials, name), 1); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		files[i] = bytes.TrimRight(files[i], "\r\n")
	}
	user, password, token, cert, key, ca := string(files[0]), string(files[1]), string(files[2]), files[3], files[4], files[5]
	proxy, config := *r.gateway, &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case password != "":
		proxy.User = url.UserPassword(cmp.Or(user, r.cluster), password)
	case token != "":
		proxy.User = url.UserPassword(r.cluster, token)
	}
	isTLS := proxy.Scheme == "https"
	if isTLS && len(cert)+len(key) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, nil, fmt.Errorf("tls.crt: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if isTLS && len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, nil, errors.New("ca.crt holds no certificate")
		}
	}
	if proxy.User == nil && config.Certificates == nil {
		return nil, nil, fmt.Errorf("%s has neither password nor token, nor tls.crt and tls.key for an https gateway", r.credentials)
	}
	return &proxy, config, nil
}
