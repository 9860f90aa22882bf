// Package provider is the command that gives every Cluster a kubeconfig that works from
// where the controllers are.
package provider

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/examples/programs/internal/logs"
	"github.com/causewayproject/causeway/examples/programs/internal/management"
	"github.com/causewayproject/causeway/examples/programs/internal/metrics"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

const program = "kubeconfig-provider"

const long = `Gives every Cluster of Cluster API a kubeconfig that works from where the controllers are,
and keeps it working.

Without flags it runs in a pod, and looks after the Clusters that annotations tell it
about; examples/deploy/kubeconfig-provider deploys it. The flags are the defaults of all
Clusters; annotations of a Namespace, and then of a Cluster, count more:

  kubectl annotate cluster prod causewayproject.github.io/proxy-url=http://other.example.com:3128

A proxy's user and password are in a Secret (keys username and password, label
causewayproject.github.io/route), which --route-secret or the annotation route-secret
names. One that a Cluster names has the key proxy-url, or gateway, too: its password goes to
no other proxy. A new route is probed before it is switched to; to go back to the one before, and to
return to the new one:

  kubectl annotate cluster prod causewayproject.github.io/rollback=
  kubectl annotate cluster prod causewayproject.github.io/rollback-

Events tell what happens to a Cluster, and so does its condition RouteReady. The process
answers on /healthz, /readyz and /metrics (Prometheus' text).`

// Command returns the command.
func Command() *cobra.Command {
	f := new(flags)
	cmd := &cobra.Command{
		Use:     "provider",
		Short:   "give every Cluster a kubeconfig that works from here, and keep it working",
		Long:    long,
		Example: "  causeway provider --kubeconfig management.conf --proxy-url http://proxy.example.com:3128 --route-secret system/proxy",
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.mode != "auto" {
				f.config.Defaults.Mode = provider.Mode(f.mode)
			}
			if err := f.check(cmd); err != nil {
				return err
			}
			log := f.log.New(cmd.ErrOrStderr())
			p := f.program()
			webhook, certificates, err := f.webhook.server(log)
			if err != nil {
				return err
			}
			p.Webhook, p.Metrics = webhook, []prometheus.Collector{certificates}
			return p.Run(cmd.Context(), log)
		},
	}
	f.add(cmd)
	return cmd
}

type flags struct {
	manager management.Flags
	mode    string
	config  provider.Config
	webhook webhookFlags
	log     logs.Flags
}

func (f *flags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	f.log.Add(set)
	d := &f.config.Defaults
	f.manager.Add(set, 4, "127.0.0.1:8082")
	set.StringVar(&f.config.Name, "name", "causeway", "`name` of this provider: one with another name leaves its Secrets alone")
	command.Choice(cmd, &f.mode, "mode", "auto", "what is done with a Cluster's Secret, unless an annotation says otherwise", "auto", "own", "decorate", "secondary", "rewrite", "off")
	set.StringVar(&d.ProxyURL, "proxy-url", "", "`URL` of the proxy that leads to the Clusters, without user and password; or direct")
	set.StringVar(&d.Gateway, "gateway", "", "`URL` of the tunnel's gateway, instead of --proxy-url")
	cli.Exclude(set, "gateway", "proxy-url")
	set.StringVar(&d.RouteSecret, "route-secret", "", "`namespace/name` of the Secret with the proxy's user and password")
	set.StringVar(&d.NoProxy, "no-proxy", "", "no_proxy `list`: Clusters on it are reached directly")
	set.StringVar(&d.TLSServerName, "tls-server-name", "", "`name` that API servers' certificates are verified for; default: the endpoint, and kubernetes.default.svc with the mode rewrite")
	set.DurationVar(&d.Grace, "grace", 10*time.Minute, "how long a new route is watched, and the one before fallen back to")
	set.DurationVar(&f.config.Interval, "interval", time.Minute, "time between two probes of a route that is in use")
	f.webhook.add(set)
}

func (f *flags) check(cmd *cobra.Command) error {
	if err := command.Require(cmd, "name"); err != nil {
		return err
	}
	switch {
	case f.config.Interval <= 0:
		return cli.Mistake("--interval must be more than zero, such as 1m")
	case f.config.Defaults.Grace <= 0:
		return cli.Mistake("--grace must be more than zero, such as 10m")
	}
	const defaults = "provider: Config.Defaults."
	return cmp.Or(f.manager.Check(), cli.FieldMistake(f.config.Check(), defaults+"ProxyURL", "--proxy-url", defaults+"Gateway", "--gateway",
		defaults+"RouteSecret", "--route-secret", defaults+"NoProxy", "--no-proxy",
		defaults+"TLSServerName", "--tls-server-name", defaults+"Mode", "--mode"))
}

func (f *flags) program() management.Program {
	r := &controllers.KubeconfigReconciler{Config: f.config, Namespaces: f.manager.Namespaces}
	return management.Program{
		Flags: f.manager, Name: program, LeaseName: program + "-" + f.config.Name,
		Setup: func(ctx context.Context, mgr manager.Manager, opts controller.Options) error {
			if f.webhook.listen != "" {
				if err := (&controllers.KubeconfigWebhook{Config: f.config, Namespaces: f.manager.Namespaces}).SetupWithManager(mgr); err != nil {
					return err
				}
			}
			return r.SetupWithManager(ctx, mgr, opts)
		},
	}
}

// webhookFlags say where the webhook is that puts lost routes back at admission.
type webhookFlags struct{ listen, cert, key string }

func (f *webhookFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.listen, "webhook-listen", "", "`address` of the webhook that puts a lost route back before a kubeconfig is stored; empty for none")
	set.StringVar(&f.cert, "webhook-cert", "", "`file` of its certificate and its chain, PEM; followed")
	set.StringVar(&f.key, "webhook-key", "", "`file` of the certificate's key, PEM")
}

// server returns the manager's webhook server, and its certificate; nil if there is to be
// none. It listens when the manager is started.
func (f *webhookFlags) server(log *slog.Logger) (webhook.Server, metrics.Certificates, error) {
	if f.listen == "" {
		if f.cert+f.key != "" {
			return nil, nil, cli.Mistake("--webhook-cert and --webhook-key: there is no --webhook-listen")
		}
		return nil, nil, nil
	}
	_, text, err := net.SplitHostPort(f.listen)
	port, portErr := strconv.ParseUint(text, 10, 16)
	if err != nil || portErr != nil || port == 0 {
		return nil, nil, cli.Mistake("--webhook-listen %q: want host:port or :port, with a port that is not 0", f.listen)
	}
	if f.cert == "" || f.key == "" {
		return nil, nil, cli.Mistake("--webhook-listen wants --webhook-cert and --webhook-key")
	}
	certificate, err := command.LoadCertificate("webhook-listen", f.cert, f.key, log)
	if err != nil {
		return nil, nil, fmt.Errorf("--webhook-cert and --webhook-key: %w", err)
	}
	server := controllers.NewWebhookServer(f.listen, &tls.Config{GetCertificate: certificate.Get, MinVersion: tls.VersionTLS12})
	return server, metrics.Certificates{"webhook-listen": certificate.Get}, nil
}
