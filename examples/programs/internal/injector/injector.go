// Package injector is the command that puts the variables of a proxy into the pods of a
// cluster: an admission webhook.
package injector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/examples/programs/internal/logs"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

const long = `Puts the variables of a proxy into the pods of a cluster, as an admission webhook.

The configuration is in a Secret with the keys HTTP_PROXY, HTTPS_PROXY and NO_PROXY, or
values: what charts read, such as <cluster>-cluster-values. --config is a directory with
it, as a pod mounts it: the program then asks the API server for nothing, and a change
arrives when the kubelet has written it, after a minute or more. --config-secret names it:
the program follows it at once, and a ConfigMap of that name, if there is one, adds its
key values.

A proxy with user and password gets into pods as a reference to the Secret --secret of
their own namespace, whose keys have the same names. With --config-secret the program keeps
that Secret in every namespace whose pods would get variables, before there are pods, and a
reference is optional until the Secret is there. One that is not ours stays as it is, and an Event says so; none is
deleted. With --config you make it yourself, and a pod without it waits for it:

  kubectl -n web create secret generic proxy --from-env-file proxy.env

NO_PROXY also gets what the cluster has to reach directly: --pods, --services, --domain and
--nodes. With --config-secret, it looks up those that you do not set (kubeadm's
ClusterConfiguration, ServiceCIDRs, the Service kube-dns, Nodes), and follows them; the log
has what it found and what it did not. --exact leaves the list as it is.

A pod's label, or its namespace's, causewayproject.github.io/inject-proxy=false keeps it
out. examples/deploy/proxy-injector deploys it, and says what failurePolicy means.

It answers on /healthz, /readyz and /metrics. On SIGTERM it is first not ready, then takes no more
connections, and ends when what it was asked is answered.`

// Command returns the command.
func Command() *cobra.Command {
	f := new(flags)
	cmd := &cobra.Command{
		Use:   "injector",
		Short: "put a proxy's variables into pods, as an admission webhook",
		Long:  long,
		Example: `  causeway injector --config /config --secret proxy --pods 10.244.0.0/16 --services 10.96.0.0/12 --cert /tls/tls.crt --key /tls/tls.key
  causeway injector --config-secret proxy-injector/proxy --secret proxy --cert /tls/tls.crt --key /tls/tls.key`,
		Args: command.Args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.Require(cmd, "cert", "key"); err != nil {
				return err
			}
			if f.config+f.source == "" {
				return cli.Mistake("--config or --config-secret must be set")
			}
			return f.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd.Flags())
	return cmd
}

type flags struct {
	listen, health, cert, key, clientCA string
	config, source, kubeconfig          string
	skip, always                        cli.List
	options                             proxyconfig.Options // without Config
	pods, services, nodes               cli.List
	domain                              string
	delay, drain                        time.Duration
	log                                 logs.Flags
}

func (f *flags) add(set *pflag.FlagSet) {
	o := &f.options
	f.log.Add(set)
	set.StringVar(&f.listen, "listen", ":9443", "`address` of the webhook, on any path")
	set.StringVar(&f.health, "health", "127.0.0.1:8084", "`address` of /healthz, /readyz and /metrics; empty for none")
	set.StringVar(&f.cert, "cert", "", "`file` of the certificate and its chain, PEM; required")
	set.StringVar(&f.key, "key", "", "`file` of its key, PEM; required")
	set.StringVar(&f.clientCA, "client-ca", "", "`file` of the authority of the API server's client certificate; empty: anyone may ask")
	set.StringVar(&f.config, "config", "", "`directory` with the configuration")
	set.StringVar(&f.source, "config-secret", "", "`namespace/name` of the Secret with the configuration, instead of --config")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` that leads to the cluster of --config-secret; default: the pod's own")
	set.StringVar(&o.Secret, "secret", "", "`name` of the Secret of a pod's namespace with the proxies that have user and password")
	set.BoolVar(&o.Plain, "plain", false, "copy user and password into pods, instead of --secret")
	set.Var(&f.pods, "pods", "`networks` of pods, for NO_PROXY")
	set.Var(&f.services, "services", "`networks` of services, for NO_PROXY")
	set.Var(&f.nodes, "nodes", "`networks` of nodes, for NO_PROXY")
	set.StringVar(&f.domain, "domain", "", "DNS `domain` of services, for NO_PROXY; default cluster.local")
	set.BoolVar(&o.Exact, "exact", false, "add nothing to NO_PROXY")
	set.Var(&f.skip, "skip-namespace", "`name` of another namespace that is left out; several are allowed")
	set.Var(&f.always, "always", "`namespace/label=value` of pods that get it where the namespace is left out; several are allowed")
	set.DurationVar(&f.delay, "drain-delay", 5*time.Second, "how long it is not ready before it takes no more connections")
	cli.Exclude(set, "config", "config-secret")
	cli.Exclude(set, "plain", "secret")
	set.DurationVar(&f.drain, "drain", 15*time.Second, "how long it waits for what it was asked then")
}

func (f *flags) scope() error {
	s := &f.options.Scope
	s.Skip = append([]string{metav1.NamespaceSystem}, f.skip...)
	for _, text := range f.always {
		namespace, label, ok := strings.Cut(text, "/")
		pods, err := metav1.ParseToLabelSelector(label)
		if !ok || namespace == "" || label == "" || err != nil {
			return cli.Mistake("--always %q is not NAMESPACE/LABEL=VALUE", text)
		}
		s.Always = append(s.Always, proxyconfig.Rule{Namespace: namespace, Pods: pods})
	}
	return nil
}

func (f *flags) run(ctx context.Context, stderr io.Writer) error {
	if err := f.scope(); err != nil {
		return err
	}
	scope, err := proxyconfig.NewInjector(f.options)
	if err != nil { // without the proxies: a flag is wrong
		return cli.FieldMistake(err, "proxyconfig: Secret", "--secret", "Plain", "--plain", "Scope.Skip", "--skip-namespace", "Scope.Always", "--always")
	}
	if _, err := f.facts().List(); err != nil {
		return cli.FieldMistake(err, command.ClusterFlags...)
	}
	log := f.log.New(stderr)
	p := &program{flags: f, log: log, scope: scope, reviews: newReviewMetrics(), asked: newAskedLog(log)}
	defer p.asked.Start()()
	if f.source != "" {
		return p.runWithSecret(ctx)
	}
	return p.runWithDirectory(ctx)
}

// facts are those of the flags.
func (f *flags) facts() noproxy.Cluster {
	return noproxy.Cluster{PodCIDRs: f.pods, ServiceCIDRs: f.services, NodeCIDRs: f.nodes, ServiceDomain: f.domain}
}

// withFacts adds to NO_PROXY what the cluster has to reach directly.
func (f *flags) withFacts(c proxyconfig.Config, facts noproxy.Cluster) (proxyconfig.Config, error) {
	if f.options.Exact || strings.TrimSpace(c.NoProxy) == "*" { // which programs know only as the whole list
		return c, nil
	}
	merged, err := proxyconfig.Layers{Installation: c, Cluster: facts}.Merge()
	if err != nil {
		return proxyconfig.Config{}, err
	}
	return merged.Config, nil
}

// injector checks the configuration, adds the facts, and returns what pods get, too.
func (f *flags) injector(c proxyconfig.Config, facts noproxy.Cluster) (*proxyconfig.Injector, proxyconfig.Config, error) {
	from := "--config"
	if f.source != "" {
		from = "--config-secret"
	}
	if f.options.Secret == "" && !f.options.Plain && c != c.WithoutCredentials() {
		return nil, c, fmt.Errorf("%s: a proxy has user or password: --secret names the Secret that pods get them from, --plain copies them into pods", from)
	}
	// A comma at the end does no harm, and NewInjector takes it away.
	_, err := (noproxy.Options{Strict: true}).Parse(strings.TrimRight(c.NoProxy, ", "))
	if wrong, ok := errors.AsType[*noproxy.EntryError](err); ok { // the first
		return nil, c, fmt.Errorf("%s: NO_PROXY: %w", from, wrong)
	}
	if err := c.Validate(); err != nil {
		return nil, c, fmt.Errorf("%s: %w", from, err)
	}
	if c, err = f.withFacts(c, facts); err != nil {
		return nil, c, err
	}
	o := f.options
	o.Config = c
	i, err := proxyconfig.NewInjector(o)
	return i, c, err
}

const (
	maxName  = 253 // Kubernetes'
	maxNames = 1 << 10
)

// newAskedLog is for what others cause: anyone may ask.
func newAskedLog(log *slog.Logger) *logs.Sampler {
	return &logs.Sampler{Log: log, PerKind: 1000, Lines: rate.NewLimiter(5, 5)}
}

func (p *program) hooks() webhook.Hooks {
	return webhook.Hooks{Reviewed: func(r webhook.Review) {
		p.reviews.WithLabelValues(resultOf(r)).Observe(r.Took.Seconds())
		level := slog.LevelInfo
		args := []any{"namespace", printable.Text(r.Namespace, maxName), "pod", printable.Text(r.Name, maxName), "reason", string(r.Reason),
			"containers", printable.Text(strings.Join(r.Injected, ","), maxNames), "dryRun", r.DryRun, "duration", r.Took}
		if r.Err != nil {
			level = slog.LevelWarn
			args = append(args, "status", r.Status, "error", r.Err)
		}
		p.asked.Write(level, "review", "", string(r.Reason), args...)
	}}
}

// newReviewMetrics counts what API servers ask. No label has a value that they choose.
func newReviewMetrics() *prometheus.HistogramVec {
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "causeway_injector_review_duration_seconds", Help: "Duration of answers about pods: injected, unchanged or error.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"result"})
	for _, result := range []string{"injected", "unchanged", "error"} {
		took.WithLabelValues(result)
	}
	return took
}

func resultOf(r webhook.Review) string {
	switch {
	case r.Err != nil:
		return "error"
	case len(r.Injected) > 0:
		return "injected"
	}
	return "unchanged"
}
