package injector

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/logs"
	"github.com/causewayproject/causeway/examples/programs/internal/restconfig"
	"github.com/causewayproject/causeway/internal/backoff"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

// A program is what the flags say.
type program struct {
	*flags
	log     *slog.Logger
	scope   *proxyconfig.Injector // without proxies
	handler *webhook.Handler
	used    atomic.Bool // the handler has a configuration
	reviews *prometheus.HistogramVec
	asked   *logs.Sampler

	discovered atomic.Pointer[noproxy.Cluster] // nil until it was looked for
}

// use takes the configuration up, and returns it as pods get it.
func (p *program) use(c proxyconfig.Config, facts noproxy.Cluster) (proxyconfig.Config, error) {
	injector, c, err := p.injector(c, facts)
	if err != nil {
		return c, err
	}
	p.handler.Use(injector)
	p.used.Store(true)
	p.log.Info("config", "config", variables(c))
	return c, nil
}

// variables returns the configuration as pods get it, without secrets and in one line.
func variables(c proxyconfig.Config) string {
	var all []string
	for _, v := range c.Redacted().Env() {
		if v.Name == strings.ToUpper(v.Name) {
			all = append(all, v.Name+"="+v.Value)
		}
	}
	return strings.Join(all, " ")
}

// runWithDirectory asks no API server.
func (p *program) runWithDirectory(ctx context.Context) error {
	source := directory(p.config)
	c, err := source.read()
	if err != nil {
		return err
	}
	p.handler = webhook.New(nil, webhook.Options{Hooks: p.hooks()})
	if _, err := p.use(c, p.facts()); err != nil {
		return err
	}
	if len(p.pods) == 0 || len(p.services) == 0 {
		p.log.Warn("not in NO_PROXY: addresses of pods without --pods, and of Services without --services")
	}
	s, err := newServer(ctx, p)
	if err != nil {
		return err
	}
	stop := cli.Go(ctx, func(ctx context.Context) {
		source.follow(ctx, c, func(c proxyconfig.Config, err error) {
			if err == nil {
				_, err = p.use(c, p.facts())
			}
			if err != nil {
				p.log.Warn("config: the one before stays", "error", err)
			}
		})
	})
	err = s.run(ctx)
	stop()
	return err
}

const (
	clientQPS   = 100
	clientBurst = 200
	setupRetry  = 5 * time.Second
)

// runWithSecret follows the Secret and the cluster, and keeps the pods' Secrets. While
// the API server can't be reached it tries again, and is alive but not ready.
func (p *program) runWithSecret(ctx context.Context) error {
	r := &controllers.PodSecretReconciler{Source: p.source, Name: p.options.Secret, Namespaces: p.scope.WantsNamespace, Render: p.render}
	if err := r.Check(); err != nil {
		return cli.Mistake("--config-secret %q is not NAMESPACE/NAME", p.source)
	}
	client, err := restconfig.Load(p.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	client.QPS, client.Burst, client.WarningHandler = clientQPS, clientBurst, rest.NoWarnings{}
	ctrllog.SetLogger(logr.FromSlogHandler(p.log.Handler()))
	p.handler = webhook.New(nil, webhook.Options{Hooks: p.hooks(), HasSecret: func(namespace, _, key string) bool { return r.Has(namespace, key) }})
	s, err := newServer(ctx, p)
	if err != nil {
		return err
	}
	var failed error
	var following sync.WaitGroup
	serving, stop := context.WithCancel(ctx)
	working, end := context.WithCancel(context.WithoutCancel(ctx)) // also while what was asked is answered
	following.Go(func() {
		failed = p.follow(working, rest.AddUserAgent(client, "proxy-injector"), r)
		stop()
	})
	err = s.run(serving)
	end()
	following.Wait()
	stop()
	return cmp.Or(failed, err)
}

// follow runs a manager until ctx ends.
func (p *program) follow(ctx context.Context, client *rest.Config, r *controllers.PodSecretReconciler) error {
	for {
		mgr, err := p.newManager(ctx, client, r)
		if err == nil {
			return mgr.Start(ctx)
		}
		p.log.Warn("waiting", "error", err)
		if !backoff.Sleep(ctx, setupRetry) {
			return nil
		}
	}
}

func (p *program) newManager(ctx context.Context, client *rest.Config, r *controllers.PodSecretReconciler) (manager.Manager, error) {
	mgr, err := manager.New(client, manager.Options{
		Logger: logr.FromSlogHandler(p.log.Handler()), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}, // in one process, as tests do
	})
	if err != nil {
		return nil, err
	}
	if err := r.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 4}); err != nil {
		return nil, err
	}
	if p.options.Exact {
		p.discovered.Store(&noproxy.Cluster{})
		return mgr, nil
	}
	facts := &controllers.ClusterFacts{Changed: func(facts noproxy.Cluster, unknown []controllers.UnknownFact) {
		p.takeFacts(facts, unknown)
		r.Refresh()
	}}
	return mgr, facts.SetupWithManager(mgr)
}

// factFlags are the flags for facts that can't be discovered.
var factFlags = map[string]string{"PodCIDRs": "--pods", "ServiceCIDRs": "--services", "ServiceDomain": "--domain", "NodeCIDRs": "--nodes"}

// takeFacts puts the flags in the place of what was discovered, and logs both.
func (p *program) takeFacts(facts noproxy.Cluster, unknown []controllers.UnknownFact) {
	set := p.facts()
	for _, f := range []struct{ to, from *[]string }{
		{&facts.PodCIDRs, &set.PodCIDRs}, {&facts.ServiceCIDRs, &set.ServiceCIDRs}, {&facts.NodeCIDRs, &set.NodeCIDRs},
	} {
		if len(*f.from) > 0 {
			*f.to = *f.from
		}
	}
	if set.ServiceDomain != "" {
		facts.ServiceDomain = set.ServiceDomain
	}
	p.discovered.Store(&facts)
	list := func(l []string) string { return strings.Join(l, ",") }
	p.log.Info("the cluster's own", "pods", list(facts.PodCIDRs), "services", list(facts.ServiceCIDRs), "domain", facts.ServiceDomain,
		"nodes", list(facts.NodeCIDRs), "controlPlane", list(facts.ControlPlaneHosts), "more", list(facts.Extra))
	known := map[string]bool{"PodCIDRs": len(facts.PodCIDRs) > 0, "ServiceCIDRs": len(facts.ServiceCIDRs) > 0,
		"ServiceDomain": facts.ServiceDomain != "", "NodeCIDRs": len(facts.NodeCIDRs) > 0}
	for _, u := range slices.DeleteFunc(unknown, func(u controllers.UnknownFact) bool { return known[u.Field] }) {
		p.log.Warn("not discovered", "what", u.Field, "set", factFlags[u.Field], "reason", u.Reason)
	}
}

// render is the reconciler's: what the pods' Secrets hold is what pods get.
func (p *program) render(c proxyconfig.Config) (proxyconfig.Config, error) {
	facts := p.discovered.Load()
	if facts == nil { // Refresh comes when they are known
		return c, controllers.ErrNotYet
	}
	return p.use(c, *facts)
}
