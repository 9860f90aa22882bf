package controllers

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// proxyRun is a ProxyReconciler in a manager.
type proxyRun struct {
	ProxyReconciler
	installation types.NamespacedName

	values, systemd string // Config.Suffixes

	cluster  *unstructured.Unstructured // an empty one, of the version that is served
	clusters client.Reader              // the manager's cache
	live     client.Reader              // the API server
	writer   *objectWriter

	own, overrides, unlabelled, installations ownCaches

	events eventLog
	usable prometheus.Gauge // whether the installation is
}

// addWriter adds the writer for this manager of fields, and the metrics.
func (p *proxyRun) addWriter(mgr manager.Manager, owner string) error {
	gauge, counts, err := newProxyMetrics()
	p.usable, p.writer = gauge, newObjectWriter(mgr.GetClient(), owner, counts)
	return err
}

// checkInstallation tells of the installation's Secret, once for all Clusters.
func (p *proxyRun) checkInstallation(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	secret, err := p.readInstallation(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if _, err = p.Config.ReadInstallation(secret); err == nil {
		p.usable.Set(1)
		log.FromContext(ctx).Info("the installation's Secret can be used")
		return reconcile.Result{}, nil
	}
	log.FromContext(ctx).Error(err, "the installation's Secret can't be used: nothing is written")
	p.refuseInstallation(secret, err)
	return reconcile.Result{}, nil
}

// refuseInstallation reports why the installation's Secret can't be used. secret is nil if
// the Secret is missing.
func (p *proxyRun) refuseInstallation(secret *corev1.Secret, err error) {
	p.usable.Set(0)
	secret = cmp.Or(secret, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.installation.Namespace, Name: p.installation.Name}})
	p.events.tell(secret, corev1.EventTypeWarning, propagate.ReasonInstallation, err.Error(), "")
}

func (p *proxyRun) readInstallation(ctx context.Context) (*corev1.Secret, error) {
	return getObject(ctx, p.installations.of(p.installation.Namespace), p.installation, &corev1.Secret{})
}

// tellWarning tells of what people have to mend.
func (p *proxyRun) tellWarning(ctx context.Context, about client.Object, reason string, err error) {
	p.tellEvents(ctx, about, []propagate.Event{{Type: corev1.EventTypeWarning, Reason: reason, Message: err.Error()}})
}

func (p *proxyRun) tellEvents(ctx context.Context, about client.Object, events []propagate.Event) {
	for _, e := range events {
		if p.events.tell(about, e.Type, e.Reason, e.Message, "") {
			log.FromContext(ctx).Info(e.Message, "reason", e.Reason)
		}
	}
}

func (p *proxyRun) readCluster(u *unstructured.Unstructured) (propagate.Cluster, error) {
	c, err := propagate.ReadCluster(u)
	if err == nil && p.Facts != nil {
		p.Facts(u, &c.Facts)
	}
	return c, err
}

func (p *proxyRun) reconcileCluster(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if !isWatched(p.Namespaces, request.Namespace) {
		return reconcile.Result{}, nil
	}
	u := p.cluster.DeepCopy()
	if err := p.clusters.Get(ctx, request.NamespacedName, u); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	cluster, err := p.readCluster(u)
	if err != nil {
		p.tellWarning(ctx, u, propagate.ReasonCluster, err)
		return reconcile.Result{}, nil
	}
	held, err := p.heldObjects(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	check := func(ctx context.Context) error { return checkScope(ctx, p.live, u) }
	return p.applyPlan(ctx, u, check, func(found client.Object) (propagate.Action, error) {
		switch o := found.(type) {
		case *corev1.ConfigMap:
			held.ConfigMap = o
		case *corev1.Secret:
			switch o.Name {
			case request.Name + p.systemd:
				held.SystemdProxy = o
			case request.Name + propagate.SuffixOverride:
				held.Override = o
			default:
				held.Secret = o
			}
		}
		return propagate.Plan(cluster, held, p.Config)
	})
}

// heldObjects returns what there is for a Cluster. propagate.Plan does not write to it.
func (p *proxyRun) heldObjects(ctx context.Context, cluster types.NamespacedName) (propagate.Held, error) {
	named := func(suffix string) types.NamespacedName {
		return types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name + suffix}
	}
	own := p.own.of(cluster.Namespace)
	var (
		h    propagate.Held
		errs [6]error
	)
	h.Installation, errs[0] = p.readInstallation(ctx)
	h.Override, errs[1] = getObject(ctx, p.overrides.of(cluster.Namespace), named(propagate.SuffixOverride), &corev1.Secret{})
	h.SystemdProxy, errs[2] = getWritten(ctx, &p.writer.writes, p.live, own, named(p.systemd), &corev1.Secret{})
	h.Secret, errs[3] = getWritten(ctx, &p.writer.writes, p.live, own, named(p.values), &corev1.Secret{})
	h.ConfigMap, errs[4] = getWritten(ctx, &p.writer.writes, p.live, own, named(p.values), &corev1.ConfigMap{})
	unlabelled, err := getObject(ctx, p.unlabelled.of(cluster.Namespace), named(propagate.SuffixOverride), secretMetadata())
	h.Unlabelled, errs[5] = unlabelled != nil && h.Override == nil, err // with both, one cache is late
	return h, errors.Join(errs[:]...)
}

// maxPlans is how often a plan is made again at once, since another writer was faster.
const maxPlans = 4

// applyPlan plans, and writes. If an object turns out to be another than the caches
// have, since they hold only ours, or are late, it plans once more with that one. check is
// whether it may be written there still.
func (p *proxyRun) applyPlan(ctx context.Context, about client.Object, check func(context.Context) error, plan func(found client.Object) (propagate.Action, error)) (reconcile.Result, error) {
	var found client.Object
	var err error
	for range maxPlans {
		action, problem := plan(found) // people have to mend it: trying again does not
		log.FromContext(ctx).V(1).Info("planned", "writes", len(action.Writes), "problem", problem)
		found, err = p.writeObjects(ctx, action.Writes, check)
		if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
			if found, err = p.readLive(ctx, found); err == nil {
				continue
			}
		}
		if err != nil {
			if !apierrors.IsNotFound(err) && !errors.Is(err, errCacheLate) && ctx.Err() == nil {
				p.tellWarning(ctx, about, propagate.ReasonWriteFailed, err)
			}
			return reconcile.Result{}, err
		}
		p.tellEvents(ctx, about, action.Events)
		if action.After > 0 {
			return reconcile.Result{RequeueAfter: spreadTime(action.After)}, nil
		}
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: time.Second}, nil
}
