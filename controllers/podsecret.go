package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// PodSecretReconciler follows a cluster's proxy configuration, and keeps the Secret that
// injected pods refer to (proxyconfig.Options.Secret) in the namespaces that have such
// pods. It needs no CustomResourceDefinition.
//
// It needs no leader either, so that a new namespace has its Secret at once, even while a
// replica ends. Each replica writes. The Secret says from which version of the source it
// was made, and a replica with an older version does not replace it.
//
// A Secret without our label stays as it is, and an Event says so. So does each Secret in a
// namespace that does not want it, or no longer: anybody there can set the label, and would
// be sent the proxy's password. None is deleted: pods refer to it.
type PodSecretReconciler struct {
	// Source is the namespace/name of the Secret with the configuration: what
	// [propagate.Config.ReadInstallation] takes. A ConfigMap of that name adds its key
	// values, if there is one: so <cluster>-cluster-values can be it. Required.
	Source string
	// Name is that of the Secrets. If "", none are written.
	Name string
	// Namespaces reports whether a namespace is to have the Secret. Required with Name.
	Namespaces func(proxyconfig.Namespace) bool
	// Render returns what the Secrets hold, given the Source's configuration; an error
	// leaves them as they are. It is called for each change of the Source, and after
	// Refresh, by one goroutine at a time. An error is logged, unless it is ErrNotYet. If
	// nil, it is what the Source says.
	Render func(proxyconfig.Config) (proxyconfig.Config, error)

	run atomic.Pointer[podSecretRun]
}

// ErrNotYet says that Render has yet to know something, and that Refresh will be called.
var ErrNotYet = errors.New("controllers: not yet")

// podSecretRun is a PodSecretReconciler in a manager.
type podSecretRun struct {
	*proxyRun
	name       string
	namespaces func(proxyconfig.Namespace) bool
	render     func(proxyconfig.Config) (proxyconfig.Config, error)

	sources, secrets ownCaches
	refresh, changed chan event.GenericEvent
	current          atomic.Pointer[propagate.EnvSecret] // nil until the Source could be read

	mu    sync.Mutex // guards wrote
	wrote map[string]podSecretWrite
}

// podSecretWrite is the last one in a namespace.
type podSecretWrite struct {
	secret propagate.EnvSecret
	at     time.Time
	delay  time.Duration // until the same is written again
}

// Check returns an error that names a field that can't be used.
func (r *PodSecretReconciler) Check() error {
	if err := (propagate.Config{Installation: r.Source}).Check(); err != nil {
		return fmt.Errorf("controllers: PodSecretReconciler.Source: %w", err)
	}
	switch {
	case r.Name == "":
		return nil
	case len(validation.IsDNS1123Subdomain(r.Name)) > 0:
		return errors.New("controllers: PodSecretReconciler.Name: want the name of a Secret")
	case r.Namespaces == nil:
		return errors.New("controllers: PodSecretReconciler.Namespaces is required")
	}
	return nil
}

// SetupWithManager adds the controllers pod-proxy and, with Name, pod-secret to the
// manager, which run on each replica. r is read once.
func (r *PodSecretReconciler) SetupWithManager(ctx context.Context, mgr manager.Manager, opts controller.Options) error {
	if err := r.Check(); err != nil {
		return err
	}
	p := &podSecretRun{
		proxyRun: &proxyRun{
			ProxyReconciler: ProxyReconciler{Config: propagate.Config{Installation: r.Source}},
			installation:    secretName(r.Source),
			live:            mgr.GetAPIReader(),
		},
		name: r.Name, namespaces: r.Namespaces, render: r.Render, sources: ownCaches{}, secrets: ownCaches{},
		refresh: make(chan event.GenericEvent, 1), changed: make(chan event.GenericEvent, 1), wrote: map[string]podSecretWrite{},
	}
	p.events.recorder = mgr.GetEventRecorderFor(podSecretProgram)
	if err := p.addWriter(mgr, podSecretProgram); err != nil {
		return fmt.Errorf("controllers: metrics: %w", err)
	}
	if err := p.addCaches(ctx, mgr); err != nil {
		return fmt.Errorf("controllers: caches of Secrets: %w", err)
	}
	everywhere := false
	opts.NeedLeaderElection = &everywhere
	if err := p.addControllers(mgr, opts); err != nil {
		return fmt.Errorf("controllers: %w", err)
	}
	r.run.Store(p)
	return nil
}

const podSecretProgram = "proxy-injector" // names what it writes

func (p *podSecretRun) addCaches(ctx context.Context, mgr manager.Manager) error {
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name)}
	}
	source := named(p.installation.Name)
	err := p.sources.addFilled(ctx, mgr, p.installation.Namespace,
		map[client.Object]cache.ByObject{&corev1.Secret{}: source, &corev1.ConfigMap{}: source})
	if err == nil && p.name != "" {
		err = p.secrets.addFilled(ctx, mgr, metav1.NamespaceAll,
			map[client.Object]cache.ByObject{&corev1.Secret{}: named(p.name), &corev1.Namespace{}: {}})
	}
	return err
}

func (p *podSecretRun) addControllers(mgr manager.Manager, opts controller.Options) error {
	only := []reconcile.Request{{NamespacedName: p.installation}}
	from := p.sources[p.installation.Namespace]
	whole := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return only })
	one := opts
	one.MaxConcurrentReconciles = 1   // as Render is promised
	p.refresh <- event.GenericEvent{} // there is no event if there is no Secret
	err := addController(mgr, "pod-proxy", one, p.reconcileSource, source.Channel(p.refresh, whole),
		source.Kind[client.Object](from, &corev1.Secret{}, whole), source.Kind[client.Object](from, &corev1.ConfigMap{}, whole))
	if err != nil || p.name == "" {
		return err
	}
	secrets := p.secrets[metav1.NamespaceAll]
	return addController(mgr, "pod-secret", opts, p.reconcileNamespace,
		source.Channel(p.changed, handler.EnqueueRequestsFromMapFunc(p.allNamespaces)),
		source.Kind[client.Object](secrets, &corev1.Namespace{}, &handler.EnqueueRequestForObject{}),
		source.Kind[client.Object](secrets, &corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, s client.Object) []reconcile.Request {
			return []reconcile.Request{requestOf("", s.GetNamespace())}
		})))
}

// Refresh has Render called again. It does not wait, and may be called at any time.
func (r *PodSecretReconciler) Refresh() {
	if p := r.run.Load(); p != nil {
		trigger(p.refresh)
	}
}

// trigger sends a zero value, unless one waits in the channel already.
func trigger[T any](events chan T) {
	var event T
	select {
	case events <- event:
	default:
	}
}

// Has reports whether the namespace has a Secret with the Name and the key, even one that
// somebody else made. It asks the cache, and does not wait.
func (r *PodSecretReconciler) Has(namespace, key string) bool {
	p := r.run.Load()
	if p == nil || p.name == "" {
		return false
	}
	s := &corev1.Secret{}
	err := p.secrets.of(namespace).Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: p.name}, s)
	_, ok := s.Data[key]
	return err == nil && ok
}

// reconcileSource reads the configuration.
func (p *podSecretRun) reconcileSource(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	from := p.sources.of(p.installation.Namespace)
	secret, err := getObject(ctx, from, p.installation, &corev1.Secret{})
	if err != nil {
		return reconcile.Result{}, err
	}
	values, err := getObject(ctx, from, p.installation, &corev1.ConfigMap{})
	if err != nil {
		return reconcile.Result{}, err
	}
	var more [][]byte
	if values != nil {
		more = append(more, []byte(values.Data[proxyconfig.ValuesKey]))
	}
	c, err := p.Config.ReadInstallation(secret, more...)
	if err == nil && p.render != nil {
		c, err = p.render(c)
	}
	if errors.Is(err, ErrNotYet) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "the configuration can't be used: what was before stays", "source", p.Config.Installation)
		p.refuseInstallation(secret, err)
		return reconcile.Result{}, nil
	}
	p.usable.Set(1)
	next := &propagate.EnvSecret{Config: c, Source: secret.UID, Version: secret.ResourceVersion}
	if before := p.current.Swap(next); before == nil || *before != *next {
		trigger(p.changed)
	}
	return reconcile.Result{}, nil
}

// allNamespaces returns a request for each Namespace: a Secret that is no longer wanted
// follows the source, too.
func (p *podSecretRun) allNamespaces(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
	var list corev1.NamespaceList
	if err := p.secrets.of("").List(ctx, &list); err != nil {
		log.FromContext(ctx).Error(err, "list Namespaces")
	}
	for i := range list.Items {
		requests = append(requests, requestOf("", list.Items[i].Name))
	}
	return requests
}

// rewriteDelay is how long a Secret that somebody changed after this process wrote it is
// left alone: replicas with different flags would write in turns, without end. It doubles
// each time, up to maxRewriteDelay.
const (
	rewriteDelay    = 10 * time.Second
	maxRewriteDelay = 10 * time.Minute
)

// reconcileNamespace writes the namespace's Secret.
func (p *podSecretRun) reconcileNamespace(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	current := p.current.Load()
	name := types.NamespacedName{Namespace: request.Name, Name: p.name}
	if current == nil || name == p.installation {
		return reconcile.Result{}, nil
	}
	from := p.secrets.of(name.Namespace)
	ns, err := getObject(ctx, from, types.NamespacedName{Name: name.Namespace}, &corev1.Namespace{})
	if err == nil && ns == nil {
		p.forgetRewrites(name.Namespace)
	}
	if err != nil || ns == nil || ns.DeletionTimestamp != nil {
		return reconcile.Result{}, err
	}
	held, err := getObject(ctx, from, name, &corev1.Secret{})
	if err != nil {
		return reconcile.Result{}, err
	}
	want := *current
	want.Namespace, want.Name = name.Namespace, name.Name
	if !p.namespaces(proxyconfig.Namespace{Name: ns.Name, Labels: ns.Labels}) {
		p.tellLeftOut(ctx, want, held)
		return reconcile.Result{}, nil
	}
	if wait := p.untilRewrite(want, time.Now()); wait > 0 && held != nil {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	about := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	check := func(ctx context.Context) error { return p.checkNamespace(ctx, ns) }
	result, err := p.applyPlan(ctx, about, check, func(found client.Object) (propagate.Action, error) {
		if s, ok := found.(*corev1.Secret); ok {
			held = s
		}
		action, err := propagate.PlanEnv(want, held, p.Config)
		if len(action.Writes) > 0 {
			p.noteRewrite(want, time.Now())
		}
		return action, err
	})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return reconcile.Result{}, nil
	}
	return result, err
}

// checkNamespace asks the API server whether the Namespace is still the one that the cache
// had, and wants the Secret. It lists, as that right is there. If not, the error is
// errCacheLate.
func (p *podSecretRun) checkNamespace(ctx context.Context, cached *corev1.Namespace) error {
	var list corev1.NamespaceList
	if err := p.live.List(ctx, &list, client.MatchingFields{metav1.ObjectNameField: cached.Name}); err != nil {
		return writeError("list", "Namespace", nameOf(cached), err)
	}
	for _, now := range list.Items {
		if now.UID == cached.UID && now.DeletionTimestamp == nil && p.namespaces(proxyconfig.Namespace{Name: now.Name, Labels: now.Labels}) {
			return nil
		}
	}
	return errCacheLate
}

// tellLeftOut tells of a Secret with our label that is not kept current.
func (p *podSecretRun) tellLeftOut(ctx context.Context, want propagate.EnvSecret, held *corev1.Secret) {
	if held == nil || held.Labels[propagate.LabelManagedBy] != p.Config.Labels()[propagate.LabelManagedBy] {
		return
	}
	if action, err := propagate.PlanEnv(want, held, p.Config); err == nil && len(action.Writes) > 0 {
		p.tellWarning(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: held.Namespace, Name: held.Name}}, propagate.ReasonNotOurs,
			fmt.Errorf("the Secret %s/%s is not kept current, as its namespace is not one that pods are injected in: delete it, or have the namespace injected", held.Namespace, held.Name))
	}
}

func (p *podSecretRun) noteRewrite(secret propagate.EnvSecret, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delay := rewriteDelay
	if last, ok := p.wrote[secret.Namespace]; ok && last.secret == secret {
		delay = min(2*last.delay, maxRewriteDelay)
	}
	p.wrote[secret.Namespace] = podSecretWrite{secret, now, delay}
}

func (p *podSecretRun) forgetRewrites(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.wrote, namespace)
}

// untilRewrite returns how long not to write what this process has written already.
func (p *podSecretRun) untilRewrite(secret propagate.EnvSecret, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.wrote[secret.Namespace]
	if !ok || last.secret != secret {
		return 0
	}
	return max(0, last.delay-now.Sub(last.at))
}
