// Package management runs a reconciler in the management cluster: what the commands
// provider and propagator have in common.
package management

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/metrics"
	"github.com/causewayproject/causeway/examples/programs/internal/restconfig"
	"github.com/causewayproject/causeway/internal/backoff"
)

const (
	defaultQPS   = 200
	defaultBurst = 400
	setupRetry   = 5 * time.Second
)

var errNotFilled = errors.New("the caches are not filled")

// Program is what runs.
type Program struct {
	Flags
	Name      string                 // of the user agent
	LeaseName string                 // in LeaseNamespace
	Webhook   webhook.Server         // of reconcilers that have one
	Metrics   []prometheus.Collector // beside those of the reconcilers
	// Setup adds the reconcilers, once Clusters are served.
	Setup func(ctx context.Context, mgr manager.Manager, opts controller.Options) error
}

// Flags are what the commands provider and propagator can be told.
type Flags struct {
	Kubeconfig     string   // file that leads to the management cluster; "": the pod's own
	Health         string   // address of /healthz, /readyz and /metrics; "": none
	LeaseNamespace string   // has the Lease that lets one of several replicas work; "": no leader election
	Namespaces     cli.List // whose Clusters are looked after; none: all
	Workers        int      // how many Clusters are looked at side by side
}

// Add adds the flags to set, with a command's own defaults.
func (f *Flags) Add(set *pflag.FlagSet, workers int, health string) {
	set.StringVar(&f.Kubeconfig, "kubeconfig", "", "`file` that leads to the management cluster; default: the pod's own")
	set.Var(&f.Namespaces, "namespace", "`name` of a namespace whose Clusters are looked after; several are allowed; default all")
	set.IntVar(&f.Workers, "workers", workers, "how many Clusters are looked at side by side")
	set.StringVar(&f.LeaseNamespace, "leader-election", "", "`namespace` of the Lease that lets one of several replicas work; empty for none")
	set.StringVar(&f.Health, "health", health, "`address` of /healthz, /readyz and /metrics; empty for none")
}

// Check returns a mistake for values that can't work.
func (f *Flags) Check() error {
	for _, namespace := range f.Namespaces {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return cli.Mistake("--namespace %q is not the name of a namespace", namespace)
		}
	}
	switch {
	case f.LeaseNamespace != "" && len(validation.IsDNS1123Label(f.LeaseNamespace)) > 0:
		return cli.Mistake("--leader-election %q is not the name of a namespace", f.LeaseNamespace)
	case f.Workers <= 0:
		return cli.Mistake("--workers must be more than zero")
	}
	return nil
}

// Run runs the program until ctx ends, and returns nil then. While no Clusters are
// served, or the API server can't be reached, it tries again, and is alive but not
// ready.
func (p Program) Run(ctx context.Context, log *slog.Logger) error {
	c, err := restconfig.Load(p.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	c.QPS, c.Burst, c.WarningHandler = defaultQPS, defaultBurst, rest.NoWarnings{}
	cli.MemoryShare() // of which the reconcilers' caches take a part, too
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
	h := &health{err: errNotFilled}
	if p.Webhook != nil {
		h.webhook = p.Webhook.StartedChecker()
	}
	stop, err := p.servePage(ctx, log, h)
	if err != nil {
		return err
	}
	return errors.Join(p.runManager(ctx, log, rest.AddUserAgent(c, p.Name), h), stop())
}

func (p Program) newManager(rest *rest.Config, log *slog.Logger, h *health) (manager.Manager, error) {
	mgr, err := manager.New(rest, manager.Options{
		Logger: logr.FromSlogHandler(log.Handler()), Cache: controllers.CacheOptions(p.Namespaces...), WebhookServer: p.Webhook,
		Metrics:          server.Options{BindAddress: "0"}, // they are on the page beside /healthz
		LeaderElection:   p.LeaseNamespace != "",
		LeaderElectionID: p.LeaseName, LeaderElectionNamespace: p.LeaseNamespace,
		LeaderElectionReleaseOnCancel: true, // the process ends when Start has returned
		// Again in one process, as tests do.
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, err
	}
	leading := manager.RunnableFunc(func(context.Context) error {
		log.Info("leading", "on", true)
		return nil
	})
	return mgr, errors.Join(mgr.Add(h), mgr.Add(leading))
}

// runManager sets the manager up, and runs it.
func (p Program) runManager(ctx context.Context, log *slog.Logger, rest *rest.Config, h *health) error {
	var mgr manager.Manager
	for {
		var err error
		if mgr == nil { // making one asks the API server
			mgr, err = p.newManager(rest, log, h)
		}
		if err == nil {
			err = checkClusters(mgr)
		}
		h.setError(cmp.Or(err, errNotFilled))
		if err == nil {
			break
		}
		log.Warn("waiting", "error", err)
		if !backoff.Sleep(ctx, setupRetry) {
			return nil
		}
	}
	if err := p.Setup(ctx, mgr, controller.Options{MaxConcurrentReconciles: p.Workers}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// checkClusters returns an error unless the API server serves Clusters.
func checkClusters(mgr manager.Manager) error {
	_, err := mgr.GetRESTMapper().RESTMapping(schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"})
	if meta.IsNoMatchError(err) {
		return controllers.ErrNoCRD
	}
	return err
}

// servePage has /healthz, /readyz and /metrics at Health, until stop is called.
func (p Program) servePage(ctx context.Context, log *slog.Logger, h *health) (stop func() error, err error) {
	mux := metrics.Mux(MetricsHandler(p.Metrics...))
	mux.Handle("/readyz", h)
	if stop, err = cli.StartPage(ctx, log, "health", p.Health, mux); err != nil {
		err = fmt.Errorf("--health: %w", err)
	}
	return stop, err
}

// MetricsHandler serves the collectors' metrics, and those of reconcilers, of requests to
// API servers and of the process.
func MetricsHandler(own ...prometheus.Collector) http.Handler {
	return metrics.Handler(ctrlmetrics.Registry, own...)
}

// health answers /readyz.
type health struct {
	webhook healthz.Checker // nil without one

	mu  sync.Mutex // guards err
	err error      // why it is not ready
}

// Start is called when the caches are filled, in the leader or not. It does not block.
func (h *health) Start(context.Context) error {
	h.setError(nil)
	return nil
}

// NeedLeaderElection is false: a process that waits to lead is ready, too.
func (h *health) NeedLeaderElection() bool { return false }

func (h *health) setError(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// ServeHTTP answers 200, or 503 with the reason.
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	err := h.err
	h.mu.Unlock()
	if err == nil && h.webhook != nil {
		err = h.webhook(r)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
