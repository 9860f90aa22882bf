package propagate

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/internal/controller"
	"github.com/causewayproject/causeway/noproxy"
)

// Options are those of a Propagator. They are read by [New], once.
type Options struct {
	// REST is the management cluster's. Required, unless both clients are
	// set. Where its QPS is 0, the Propagator's clients have 200, and Burst 400;
	// the API server's warnings are dropped, unless it has a handler for them.
	REST *rest.Config
	// Kubernetes and Dynamic are used instead of REST. It is both or neither.
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	// Namespaces are those whose Clusters are looked after. If empty, all.
	Namespaces []string
	// Config is the installation's.
	Config Config
	// Facts, if not nil, adds what else the program knows of a Cluster, such as
	// the networks of its nodes and its cloud. Several goroutines call it at once,
	// for each plan. If it reads anything besides the Cluster, changes to that are
	// not noticed. The Cluster has all fields but managedFields. Without Facts, the
	// cache keeps only the fields that are read.
	Facts func(cluster *unstructured.Unstructured, facts *noproxy.Cluster)
	// EnvSecrets are written in the management cluster. If nil, none.
	EnvSecrets *EnvSecrets
	// Workers is how many Clusters are looked at side by side. 8 if 0.
	Workers int
	// LeaderElection, if not nil, lets one of several Propagators work at a time.
	LeaderElection *LeaderElection
	Hooks          Hooks
}

// EnvSecrets are Secrets with the installation's configuration in the management
// cluster itself, to which [proxyconfig.Options] refers: each has what
// [proxyconfig.Config.EnvSecretData] returns. Other keys of such a Secret are
// kept, one that is not ours stays as it is, and when a namespace is no longer
// selected, the Secret stays: pods refer to it.
type EnvSecrets struct {
	// Name of the Secret in each namespace. Required.
	Name string
	// Namespaces selects namespaces by label. If nil, none; an empty one, all.
	Namespaces *metav1.LabelSelector
}

// compile returns the selector; nil for no Secrets.
func (e *EnvSecrets) compile() (labels.Selector, error) {
	if e == nil || e.Namespaces == nil {
		return nil, nil
	}
	if len(validation.IsDNS1123Subdomain(e.Name)) > 0 {
		return nil, errors.New("propagate: Options.EnvSecrets.Name: want the name of a Secret")
	}
	selector, err := metav1.LabelSelectorAsSelector(e.Namespaces)
	if err != nil {
		return nil, errors.New("propagate: Options.EnvSecrets.Namespaces: " + err.Error())
	}
	return selector, nil
}

// Hooks are told what happens; metrics and logs are made of them. Each may be
// nil. They are called by several goroutines at once, and must not block.
// Nothing that they are told holds a secret.
type Hooks struct {
	// Installation is told what is wrong with the installation's Secret, nil for
	// nothing, when work begins and when the Secret changed. While there is an
	// error, nothing is written.
	Installation func(err error)
	// Planned is called after each plan for a Cluster, with Plan's error.
	Planned func(cluster types.NamespacedName, took time.Duration, err error)
	// PlannedEnv is called after each plan for the Secret of Options.EnvSecrets in
	// a namespace.
	PlannedEnv func(namespace string, err error)
	// Wrote is called after each write, whether it succeeded or not. object is the
	// kind and the name, such as "Secret org/prod-systemd-proxy".
	Wrote func(object string, kind Write, err error)
	// Queued is told how much waits to be looked at.
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
	WriteCreate Write = "create"
	WriteUpdate Write = "update"
	WriteEvent  Write = "event" // an Event about the object was created
)

const (
	packageName    = "propagate" // in front of errors
	program        = "proxy-propagator"
	defaultWorkers = 8
)

// LeaderElection is by a Lease. client-go writes a line to its own log (klog)
// when the leader changes.
type LeaderElection struct {
	Namespace string // the Lease's. Required.
	Name      string // the Lease's. "proxy-propagator" if empty.
	Identity  string // this process, unique. The host's name and a random number if empty.
	// Lease is how long a silent leader still counts as the leader; Renew,
	// how long the leader tries to renew it before it stops; Retry, the time
	// between two attempts. 15, 10 and 2 seconds if 0.
	Lease, Renew, Retry time.Duration
}

func (o *Options) leaderElection() *controller.LeaderElection {
	return (*controller.LeaderElection)(o.LeaderElection)
}

var (
	// Run returns ErrLostLease when another process has become the leader.
	// Nothing was written after the lease could not be renewed.
	ErrLostLease = errors.New("propagate: the lease of the leader election was lost")
	// ErrNoCRD says that the API server serves no Clusters.
	ErrNoCRD = errors.New(packageName + controller.NoCRD)
	// ErrRan is returned by a second call of Run.
	ErrRan = errors.New("propagate: Run was called before")
)

// Propagator is the controller around [Plan]: it watches Clusters and what
// belongs to them, asks Plan, and does what it says. It is safe for concurrent use.
type Propagator struct {
	opts         Options
	installation types.NamespacedName
	envs         labels.Selector // nil for none
	base         *controller.Controller
	ran          sync.Once
}

// New returns a Propagator. Nothing is sent before [Propagator.Run].
func New(opts Options) (*Propagator, error) {
	if opts.Workers < 0 {
		return nil, errors.New("propagate: Options.Workers: want no negative number")
	}
	if err := opts.Config.Check(); err != nil {
		return nil, err
	}
	namespace, name, _ := strings.Cut(opts.Config.Installation, "/")
	envs, err := opts.EnvSecrets.compile()
	if err != nil {
		return nil, err
	}
	if err := opts.leaderElection().Check(packageName); err != nil {
		return nil, err
	}
	kube, dyn, err := controller.Clients(packageName, opts.REST, opts.Kubernetes, opts.Dynamic)
	if err != nil {
		return nil, err
	}
	base := &controller.Controller{Name: packageName, Program: program, Kube: kube, Dynamic: dyn, Failed: opts.Hooks.Error}
	return &Propagator{opts: opts, installation: types.NamespacedName{Namespace: namespace, Name: name}, envs: envs, base: base}, nil
}

// Run looks after the Clusters until ctx ends, and returns nil then. As long
// as the API server can't be reached, or doesn't serve Clusters, it tries
// again and tells Hooks.Error. With leader election, it is [ErrLostLease]
// if the lease was lost.
//
// When Run returns, none of its writes goes on. It can be called once.
func (p *Propagator) Run(ctx context.Context) error {
	err := ErrRan
	p.ran.Do(func() { err = p.run(ctx) })
	return err
}

func (p *Propagator) run(ctx context.Context) error {
	defer p.base.Health.End()
	gvr, ok := p.base.ClusterResource(ctx, ErrNoCRD)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	r := p.newRun(gvr)
	defer r.waitStopped()
	defer cancel()
	if err := r.watch(ctx); err != nil {
		return err
	}
	if !controller.Sync(ctx, r.clusters, r.secrets, r.configMaps, r.overrides, r.installations, r.namespaces, r.envSecrets) {
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
	r.queue.Add(task{kind: installationTask})
	controller.Work(ctx, r.queue, cmp.Or(r.opts.Workers, defaultWorkers), r.opts.Hooks.Queued, r.reconcile)
}

// Healthz answers 200, and 503 once Run has returned.
func (p *Propagator) Healthz() http.Handler {
	return p.base.Health.Healthz("the propagator has ended")
}

// Readyz answers 200 while Run has its caches filled, as a leader or in
// waiting, and 503 otherwise, with a reason. A Secret of the installation that
// can't be used is not among them: see Hooks.Installation.
func (p *Propagator) Readyz() http.Handler { return p.base.Health.Readyz() }
