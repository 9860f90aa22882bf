// Proxy-injector is an admission webhook that puts the variables of a proxy into
// the pods of a cluster.
//
//	proxy-injector -config /config -secret proxy -cert /tls/tls.crt -key /tls/tls.key
//
// -config is a directory with the files HTTP_PROXY, HTTPS_PROXY and NO_PROXY: a
// Secret or ConfigMap as a pod mounts it. It is followed, and so are the
// certificate's files. A proxy with user and password gets into pods as a
// reference to the Secret -secret of their own namespace, whose keys have the
// same names:
//
//	kubectl -n web create secret generic proxy --from-env-file proxy.env
//
// Nothing here creates that Secret, and a pod without it waits for it.
// examples/deploy/proxy-injector deploys the program, and says what failurePolicy
// means. A pod's label, or its namespace's, causewayproject.github.io/inject-proxy=false
// keeps it out.
//
// It answers on /healthz and /readyz. On SIGTERM it is first not ready, then takes
// no more connections, and ends when what it was asked is answered.
package injector

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

type flags struct {
	listen, health, cert, key, clientCA, config string
	skip, always                                cli.List
	kubeSystem                                  bool
	options                                     proxyconfig.Options // without Config
	delay, drain                                time.Duration
}

func (f *flags) parse(args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("proxy-injector", flag.ContinueOnError)
	o := &f.options
	set.StringVar(&f.listen, "listen", ":8443", "`address` of the webhook, on any path")
	set.StringVar(&f.health, "health", "127.0.0.1:8081", "`address` of /healthz and /readyz; empty for none")
	set.StringVar(&f.cert, "cert", "", "`file` of the certificate and its chain, PEM; required")
	set.StringVar(&f.key, "key", "", "`file` of its key, PEM; required")
	set.StringVar(&f.clientCA, "client-ca", "", "`file` of the authority of the API server's client certificate; empty: anyone may ask")
	set.StringVar(&f.config, "config", "", "`directory` with HTTP_PROXY, HTTPS_PROXY and NO_PROXY; required")
	set.StringVar(&o.Secret, "secret", "", "`name` of the Secret of a pod's namespace with the proxies that have user and password")
	set.BoolVar(&o.Optional, "optional", false, "start pods without a proxy where the Secret is missing")
	set.BoolVar(&o.Plain, "plain", false, "copy user and password into pods, instead of -secret")
	set.BoolVar(&o.Exact, "exact", false, "do not add the API server's address to NO_PROXY")
	set.BoolVar(&o.KeepEnvFrom, "keep-env-from", false, "leave containers alone whose envFrom may set a proxy")
	set.BoolVar(&o.Scope.MirrorPods, "mirror-pods", false, "take in mirror pods")
	set.BoolVar(&f.kubeSystem, "kube-system", false, "take in kube-system")
	set.Var(&f.skip, "skip-namespace", "`name` of another namespace that is left out; several are allowed")
	set.Var(&f.always, "always", "`namespace/label=value` of pods that get it where the namespace is left out; several are allowed")
	set.DurationVar(&f.delay, "drain-delay", 5*time.Second, "how long it is not ready before it takes no more connections")
	set.DurationVar(&f.drain, "drain", 15*time.Second, "how long it waits for what it was asked then")
	positional, err := cli.Parse(set, args, stdout)
	switch {
	case err != nil:
		return err
	case len(positional) > 0:
		return cli.UsageError{Text: fmt.Sprintf("proxy-injector: unexpected argument %q", positional[0])}
	case f.cert == "" || f.key == "" || f.config == "":
		return cli.UsageError{Text: "proxy-injector: -cert, -key and -config are required"}
	}
	return f.scope()
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
			return cli.UsageError{Text: fmt.Sprintf("proxy-injector: -always %q is not NAMESPACE/LABEL=VALUE", text)}
		}
		s.Always = append(s.Always, proxyconfig.Rule{Namespace: namespace, Pods: pods})
	}
	return nil
}

// run is main without the process.
func Run(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) error {
	var f flags
	if err := f.parse(args, stdout); err != nil {
		return err
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
	s, err := newServer(ctx, &f, h, log)
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
		return nil, errors.New("proxy-injector: -config: a proxy has user or password: -secret names the Secret that pods get them from, -plain copies them into pods")
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
