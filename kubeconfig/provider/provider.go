package provider

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/controller"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// Options are those of a Provider. They are read by [New], once.
type Options struct {
	// REST names the management cluster. Required, unless both clients are
	// set. If its QPS is 0, the Provider's clients have 200, and Burst 400;
	// the API server's warnings are dropped, unless it has a handler for them.
	REST *rest.Config
	// Kubernetes and Dynamic are used instead of REST. It is both or neither.
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	// Namespaces are those whose Clusters are looked after. If empty, all.
	Namespaces []string
	// Config is the installation's. Now and Results are not read.
	Config Config
	// Plan decides. If nil, the package's [Plan]; another one can wrap it.
	Plan func(Cluster, Secrets, Config) (Action, error)
	// Probe tries a kubeconfig. If nil, [probe.Run]. Another one knows
	// tunnels that end in this process, say. It returns when ctx ends.
	Probe func(ctx context.Context, cluster Cluster, config *clientcmdapi.Config) probe.Report
	// ProbeTimeout ends a probe. 15 seconds if 0.
	ProbeTimeout time.Duration
	// Workers is how many Clusters are looked at side by side; Probes, how many
	// probes run. 4 and 32 if 0.
	Workers, Probes int
	// LeaderElection, if not nil, lets one of several Providers work at a time.
	LeaderElection *LeaderElection
	Hooks          Hooks
}

// Hooks are told what happens; metrics and logs are made of them. Each may be
// nil. They are called by several goroutines at once, and must not block.
// Nothing that they are told holds a secret.
type Hooks struct {
	// Planned is called after each plan.
	Planned func(cluster types.NamespacedName, took time.Duration, err error)
	// Wrote is called after each write, whether it succeeded or not.
	Wrote func(cluster types.NamespacedName, kind Write, err error)
	// Probed is called after each probe. report.OK says how it went, and
	// report.Failed in which phase.
	Probed func(cluster types.NamespacedName, took time.Duration, report probe.Report)
	// Queued is told how many Clusters wait to be looked at.
	Queued func(depth int)
	// Leading is told of leadership taken and lost; without LeaderElection, of
	// the work's begin and end.
	Leading func(bool)
	// Error is told of errors that no other hook is told of, such as a watch
	// that fails. All of them are tried again.
	Error func(error)
}

// Write is what was written.
type Write string

// The writes.
const (
	WriteCreate    Write = "create"    // a Secret was created
	WriteUpdate    Write = "update"    // a Secret was updated
	WriteDelete    Write = "delete"    // a Secret was deleted
	WriteEvent     Write = "event"     // an Event was created
	WriteCondition Write = "condition" // the condition in a Cluster's status was written
)

const (
	packageName = "provider" // in front of errors
	program     = "kubeconfig-provider"

	defaultProbeTimeout = 15 * time.Second
	defaultWorkers      = 4
	defaultProbes       = 32
	defaultName         = "causeway"
)

func (o *Options) planFunc() func(Cluster, Secrets, Config) (Action, error) {
	if o.Plan != nil {
		return o.Plan
	}
	return Plan
}

func (o *Options) probeCandidate(ctx context.Context, cluster Cluster, c Candidate) probe.Report {
	if o.Probe != nil {
		return o.Probe(ctx, cluster, c.Config)
	}
	return c.Options().Run(ctx, c.Config)
}

// Provider is the controller around [Plan]: it watches Clusters and what
// belongs to them, asks Plan, and does what it says. It is safe for concurrent use.
type Provider struct {
	opts Options
	base *controller.Controller
	ran  sync.Once
}

// New returns a Provider. Nothing is sent before [Provider.Run].
func New(opts Options) (*Provider, error) {
	if opts.Workers < 0 || opts.Probes < 0 || opts.ProbeTimeout < 0 {
		return nil, errors.New("provider: Options.Workers, Probes and ProbeTimeout: want no negative number")
	}
	if err := opts.leaderElection().Check(packageName); err != nil {
		return nil, err
	}
	kube, dyn, err := controller.Clients(packageName, opts.REST, opts.Kubernetes, opts.Dynamic)
	if err != nil {
		return nil, err
	}
	base := &controller.Controller{Name: packageName, Program: program, Kube: kube, Dynamic: dyn, Failed: opts.Hooks.Error}
	return &Provider{opts: opts, base: base}, nil
}

// ErrRan is returned by a second call of Run.
var ErrRan = errors.New("provider: Run was called before")

// Run looks after the Clusters until ctx ends, and returns nil then. As long
// as the API server can't be reached, or doesn't serve Clusters, it tries
// again and tells Hooks.Error. With leader election, it is [ErrLostLease]
// if the lease was lost.
//
// When Run returns, none of its probes and writes goes on. It can be called
// once.
func (p *Provider) Run(ctx context.Context) error {
	err := ErrRan
	p.ran.Do(func() { err = p.run(ctx) })
	return err
}

func (p *Provider) run(ctx context.Context) error {
	defer p.base.Health.End()
	gvr, ok := p.base.ClusterResource(ctx, ErrNoCRD)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	r := p.newRun(gvr)
	defer r.wait()
	defer cancel()
	if err := r.startInformers(ctx); err != nil {
		return err
	}
	if !controller.Sync(ctx, r.clusters, r.secrets, r.routes, r.namespaces) {
		return nil
	}
	p.base.Health.Synced()
	return p.base.Lead(ctx, p.opts.leaderElection(), ErrLostLease, r.runWorkers)
}

// runWorkers plans and writes until ctx ends.
func (r *run) runWorkers(ctx context.Context) {
	if leading := r.opts.Hooks.Leading; leading != nil {
		leading(true)
		defer leading(false)
	}
	controller.Work(ctx, r.queue, cmp.Or(r.opts.Workers, defaultWorkers), r.opts.Hooks.Queued, r.reconcile)
	r.probes.Wait()
}

func (p *Provider) reportError(err error) {
	if p.opts.Hooks.Error != nil && err != nil {
		p.opts.Hooks.Error(err)
	}
}

// Healthz answers 200, and 503 once Run has returned.
func (p *Provider) Healthz() http.Handler { return p.base.Health.Healthz("the provider has ended") }

// Readyz answers 200 while Run has its caches filled, as a leader or in
// waiting, and 503 otherwise, with a reason.
func (p *Provider) Readyz() http.Handler { return p.base.Health.Readyz() }
