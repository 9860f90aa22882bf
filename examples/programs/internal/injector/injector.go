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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

const long = `Puts the variables of a proxy into the pods of a cluster, as an admission webhook.

--config is a directory with the files HTTP_PROXY, HTTPS_PROXY and NO_PROXY: a Secret or
ConfigMap as a pod mounts it. It is followed, and so are the certificate's files; one
without a proxy, or with an entry of NO_PROXY that covers nothing, is refused. A proxy
with user and password gets into pods as a reference to the Secret --secret of their own
namespace, whose keys have the same names:

  kubectl -n web create secret generic proxy --from-env-file proxy.env

Nothing here creates that Secret, and a pod without it waits for it. A pod's label, or its
namespace's, causewayproject.github.io/inject-proxy=false keeps it out.
examples/deploy/proxy-injector deploys it, and says what failurePolicy means.

It answers on /healthz and /readyz. On SIGTERM it is first not ready, then takes no more
connections, and ends when what it was asked is answered.`

// Command returns the command.
func Command() *cobra.Command {
	f := new(flags)
	cmd := &cobra.Command{
		Use:     "injector",
		Short:   "put a proxy's variables into pods, as an admission webhook",
		Long:    long,
		Example: "  causeway injector --config /config --secret proxy --cert /tls/tls.crt --key /tls/tls.key",
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.Require(cmd, "cert", "key", "config"); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd.Flags())
	return cmd
}

type flags struct {
	listen, health, cert, key, clientCA, config string
	skip, always                                cli.List
	kubeSystem                                  bool
	options                                     proxyconfig.Options // without Config
	delay, drain                                time.Duration
}

func (f *flags) add(set *pflag.FlagSet) {
	o := &f.options
	set.StringVar(&f.listen, "listen", ":9443", "`address` of the webhook, on any path")
	set.StringVar(&f.health, "health", "127.0.0.1:8084", "`address` of /healthz and /readyz; empty for none")
	set.StringVar(&f.cert, "cert", "", "`file` of the certificate and its chain, PEM; required")
	set.StringVar(&f.key, "key", "", "`file` of its key, PEM; required")
	set.StringVar(&f.clientCA, "client-ca", "", "`file` of the authority of the API server's client certificate; empty: anyone may ask")
	set.StringVar(&f.config, "config", "", "`directory` with HTTP_PROXY, HTTPS_PROXY and NO_PROXY; required")
	set.StringVar(&o.Secret, "secret", "", "`name` of the Secret of a pod's namespace with the proxies that have user and password")
	set.BoolVar(&o.Optional, "optional", false, "start pods without a proxy where the Secret is missing")
	set.BoolVar(&o.Plain, "plain", false, "copy user and password into pods, instead of --secret")
	set.BoolVar(&o.Exact, "exact", false, "do not add the API server's address to NO_PROXY")
	set.BoolVar(&o.KeepEnvFrom, "keep-env-from", false, "leave containers alone whose envFrom may set a proxy")
	set.BoolVar(&o.Scope.MirrorPods, "mirror-pods", false, "take in mirror pods")
	set.BoolVar(&f.kubeSystem, "kube-system", false, "take in kube-system")
	set.Var(&f.skip, "skip-namespace", "`name` of another namespace that is left out; several are allowed")
	set.Var(&f.always, "always", "`namespace/label=value` of pods that get it where the namespace is left out; several are allowed")
	set.DurationVar(&f.delay, "drain-delay", 5*time.Second, "how long it is not ready before it takes no more connections")
	set.DurationVar(&f.drain, "drain", 15*time.Second, "how long it waits for what it was asked then")
}

func (f *flags) scope() error {
	s := &f.options.Scope
	s.Skip = append([]string{}, f.skip...)
	if !f.kubeSystem {
		s.Skip = append(s.Skip, metav1.NamespaceSystem)
	}
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
	if _, err := proxyconfig.NewInjector(f.options); err != nil { // without the proxies: a flag is wrong
		return cli.FieldMistake(err, "proxyconfig: Secret", "--secret", "Plain", "--plain", "Scope.Skip", "--skip-namespace", "Scope.Always", "--always")
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	source := directory(f.config)
	config, err := source.read()
	if err != nil {
		return err
	}
	injector, err := f.injector(config)
	if err != nil {
		return err
	}
	h := webhook.New(injector, webhook.Options{Hooks: hooks(log)})
	s, err := newServer(ctx, f, h, log)
	if err != nil {
		return err
	}
	followed := make(chan struct{})
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer close(followed)
		source.follow(ctx, config, func(c proxyconfig.Config, err error) {
			injector, err := f.use(c, err)
			if err != nil {
				log.Warn("config: the one before stays", "error", err)
				return
			}
			h.Use(injector)
			log.Info("config", "config", c.String())
		})
	}()
	err = s.run(ctx)
	stop()
	<-followed
	return err
}

func (f *flags) injector(c proxyconfig.Config) (*proxyconfig.Injector, error) {
	o := f.options
	o.Config = c
	if o.Secret == "" && !o.Plain && c != c.WithoutCredentials() {
		return nil, errors.New("--config: a proxy has user or password: --secret names the Secret that pods get them from, --plain copies them into pods")
	}
	// A comma at the end does no harm, and NewInjector takes it away.
	_, err := (noproxy.Options{Strict: true}).Parse(strings.TrimRight(c.NoProxy, ", "))
	if wrong, ok := errors.AsType[*noproxy.EntryError](err); ok { // the first
		return nil, fmt.Errorf("--config: NO_PROXY: %w", wrong)
	}
	return proxyconfig.NewInjector(o)
}

func (f *flags) use(c proxyconfig.Config, err error) (*proxyconfig.Injector, error) {
	if err != nil {
		return nil, err
	}
	return f.injector(c)
}

func hooks(log *slog.Logger) webhook.Hooks {
	return webhook.Hooks{Reviewed: func(r webhook.Review) {
		args := []any{"namespace", r.Namespace, "pod", r.Name, "reason", string(r.Reason), "containers", strings.Join(r.Injected, ","),
			"dryRun", r.DryRun, "took", r.Took}
		if r.Err != nil {
			log.Warn("review", append(args, "status", r.Status, "error", r.Err)...)
			return
		}
		log.Info("review", args...)
	}}
}
