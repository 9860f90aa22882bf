package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// ProxyReconciler keeps the objects from which Giant Swarm's cluster apps and
// machines take their proxies current for every Cluster, as [propagate.Plan] says.
//
// It reads Clusters from the manager's cache. Of Secrets and ConfigMaps it has
// caches of its own, which ask for no others than its own, the overrides and the
// installation's: a cache has one selector for a kind. Of all other Secrets it watches the
// metadata, and keeps the names, to find an override without its label. RBAC can't
// restrict a watch by label, so that its service account could read the others of these
// namespaces.
type ProxyReconciler struct {
	// Config is the installation's. Required.
	Config propagate.Config
	// Namespaces are those whose Clusters are looked after. If empty, all. The
	// manager's cache must have them.
	Namespaces []string
	// Facts, if not nil, adds what else the program knows of a Cluster, such as
	// the networks of its nodes and its cloud. Several goroutines call it at once,
	// for each change and each plan. If it reads anything besides the Cluster, changes
	// to that are not noticed. It must not write to the Cluster, which has the fields
	// that the manager's cache keeps: with [CacheOptions], few.
	Facts func(cluster *unstructured.Unstructured, facts *noproxy.Cluster)
	// EnvSecrets are written in the management cluster. If nil, none.
	EnvSecrets *EnvSecrets
}

// EnvSecrets are Secrets with the installation's configuration in the management
// cluster itself, to which proxyconfig.Options refers: see [propagate.PlanEnv]. A
// Secret that is not ours stays as it is, and when a namespace is no longer
// selected, the Secret stays: pods refer to it.
type EnvSecrets struct {
	// Name of the Secret in each namespace. Required.
	Name string
	// Namespaces selects namespaces by label. If nil, none; an empty one, all.
	Namespaces *metav1.LabelSelector
}

// namespaceSelector returns nil for no Secrets.
func (e *EnvSecrets) namespaceSelector() (labels.Selector, error) {
	if e == nil || e.Namespaces == nil {
		return nil, nil
	}
	if len(validation.IsDNS1123Subdomain(e.Name)) > 0 {
		return nil, errors.New("controllers: EnvSecrets.Name: want the name of a Secret")
	}
	selector, err := metav1.LabelSelectorAsSelector(e.Namespaces)
	if err != nil {
		return nil, fmt.Errorf("controllers: EnvSecrets.Namespaces: %w", err)
	}
	return selector, nil
}

// Check returns an error that names a field that can't be used. SetupWithManager calls
// it.
func (r *ProxyReconciler) Check() error {
	_, err := r.EnvSecrets.namespaceSelector()
	return errors.Join(r.Config.Check(), err)
}

// SetupWithManager adds the controllers proxy, proxy-installation and, with
// EnvSecrets, proxy-env to the manager, each with opts. Where opts has no RateLimiter,
// they wait 100 ms after a first failure, and a minute at most. The error is
// [ErrNoCRD] if the API server serves no Clusters. r is read once.
func (r *ProxyReconciler) SetupWithManager(ctx context.Context, mgr manager.Manager, opts controller.Options) error {
	if err := r.Check(); err != nil {
		return err
	}
	envs, err := r.EnvSecrets.namespaceSelector()
	if err != nil {
		return err
	}
	cluster, err := servedClusters(mgr.GetRESTMapper())
	if err != nil {
		return err
	}
	namespace, name, _ := strings.Cut(r.Config.Installation, "/")
	p := &proxyRun{
		ProxyReconciler: *r,
		installation:    types.NamespacedName{Namespace: namespace, Name: name},
		cluster:         cluster,
		clusters:        mgr.GetCache(),
		live:            mgr.GetAPIReader(),
		writer:          client.WithFieldOwner(mgr.GetClient(), proxyProgram+"-"+r.Config.Labels()[propagate.LabelManagedBy]),
		own:             ownCaches{}, overrides: ownCaches{}, unlabelled: ownCaches{}, installations: ownCaches{}, envs: ownCaches{},
	}
	p.events.recorder = mgr.GetEventRecorderFor(proxyProgram)
	if p.metrics, err = newProxyMetrics(); err != nil {
		return fmt.Errorf("controllers: metrics: %w", err)
	}
	if err := p.addCaches(ctx, mgr, envs); err != nil {
		return fmt.Errorf("controllers: caches of Secrets: %w", err)
	}
	if err := p.addControllers(mgr, opts); err != nil {
		return fmt.Errorf("controllers: %w", err)
	}
	return nil
}

const proxyProgram = "proxy-propagator" // names what it writes

// addCaches adds a cache for each selection of Secrets, since a cache has one selector
// for a kind. They are filled whether this process is the leader or not.
func (p *proxyRun) addCaches(ctx context.Context, mgr manager.Manager, envs labels.Selector) error {
	ours := labels.SelectorFromSet(p.Config.Labels())
	add := func(to ownCaches, namespace string, objects map[client.Object]cache.ByObject) error {
		shared := true // neither propagate.Plan nor a handler writes to an object
		err := to.addCache(mgr, namespace, cache.Options{
			ByObject: objects, DefaultTransform: cache.TransformStripManagedFields(), DefaultUnsafeDisableDeepCopy: &shared,
		})
		if err != nil {
			return err
		}
		return fillCache(ctx, to[namespace], slices.Collect(maps.Keys(objects))...)
	}
	errs := []error{fillCache(ctx, mgr.GetCache(), p.cluster)}
	for _, ns := range scopesOf(p.Namespaces) {
		errs = append(errs,
			add(p.own, ns, map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: ours}, &corev1.ConfigMap{}: {Label: ours}}),
			add(p.overrides, ns, map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: hasLabel(propagate.LabelOverride)}}),
			add(p.unlabelled, ns, map[client.Object]cache.ByObject{secretMetadata(): {Label: lacksLabel(propagate.LabelOverride), Transform: trimMetadata}}))
	}
	named := fields.OneTermEqualSelector("metadata.name", p.installation.Name)
	errs = append(errs, add(p.installations, p.installation.Namespace, map[client.Object]cache.ByObject{&corev1.Secret{}: {Field: named}}))
	if envs != nil {
		named := fields.OneTermEqualSelector("metadata.name", p.EnvSecrets.Name)
		errs = append(errs, add(p.envs, metav1.NamespaceAll, map[client.Object]cache.ByObject{
			&corev1.Namespace{}: {Label: envs}, &corev1.Secret{}: {Label: ours, Field: named}}))
	}
	return errors.Join(errs...)
}

// secretMetadata is what a cache knows a Secret's metadata by.
func secretMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return m
}

// trimMetadata reduces metadata to what names an object.
func trimMetadata(object any) (any, error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	kept := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta}
	kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = m.Namespace, m.Name, m.UID, m.ResourceVersion
	return kept, nil
}
