package controllers

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
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
}

// Check returns an error that names a field that can't be used. SetupWithManager calls
// it.
func (r *ProxyReconciler) Check() error {
	return r.Config.Check()
}

// SetupWithManager adds the controllers proxy and proxy-installation to the manager, each
// with opts. Where opts has no RateLimiter, they wait 100 ms after a first failure, and
// a minute at most. The error is [ErrNoCRD] if the API server serves no Clusters. r is
// read once.
func (r *ProxyReconciler) SetupWithManager(ctx context.Context, mgr manager.Manager, opts controller.Options) error {
	if err := r.Check(); err != nil {
		return err
	}
	cluster, err := servedClusters(mgr.GetRESTMapper())
	if err != nil {
		return err
	}
	p := &proxyRun{
		ProxyReconciler: *r,
		installation:    secretName(r.Config.Installation),
		cluster:         cluster,
		clusters:        mgr.GetCache(),
		live:            mgr.GetAPIReader(),
		own:             ownCaches{}, overrides: ownCaches{}, unlabelled: ownCaches{}, installations: ownCaches{},
	}
	p.values, p.systemd = r.Config.Suffixes()
	p.events.recorder = mgr.GetEventRecorderFor(proxyProgram)
	if err := p.addWriter(mgr, proxyProgram+"-"+r.Config.Labels()[propagate.LabelManagedBy]); err != nil {
		return fmt.Errorf("controllers: metrics: %w", err)
	}
	if err := p.addCaches(ctx, mgr); err != nil {
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
func (p *proxyRun) addCaches(ctx context.Context, mgr manager.Manager) error {
	ours := labels.SelectorFromSet(p.Config.Labels())
	errs := []error{fillCache(ctx, mgr.GetCache(), p.cluster)}
	for _, ns := range scopesOf(p.Namespaces) {
		errs = append(errs,
			p.own.addFilled(ctx, mgr, ns, map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: ours, Transform: trimData}, &corev1.ConfigMap{}: {Label: ours, Transform: trimData}}),
			p.overrides.addFilled(ctx, mgr, ns, map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: parseSelector(propagate.LabelOverride), Transform: trimData}}),
			p.unlabelled.addFilled(ctx, mgr, ns, map[client.Object]cache.ByObject{secretMetadata(): {Label: parseSelector("!" + propagate.LabelOverride), Transform: trimMetadata}}))
	}
	named := fields.OneTermEqualSelector("metadata.name", p.installation.Name)
	errs = append(errs, p.installations.addFilled(ctx, mgr, p.installation.Namespace, map[client.Object]cache.ByObject{&corev1.Secret{}: {Field: named}}))
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
