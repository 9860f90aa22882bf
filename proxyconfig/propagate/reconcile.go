package propagate

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/internal/controller"
)

// reconcile plans for what is queued, and does what the plan says. For each
// task there is one call at a time.
func (r *run) reconcile(ctx context.Context, t task) error {
	switch t.kind {
	case namespaceTask:
		return r.reconcileNamespace(ctx, t)
	case installationTask:
		r.checkInstallation(ctx)
		return nil
	}
	return r.reconcileCluster(ctx, t)
}

// checkInstallation tells of the installation's Secret, once for all Clusters.
func (r *run) checkInstallation(ctx context.Context) {
	secret := r.installations.Secret(r.installation)
	_, err := r.opts.Config.ReadInstallation(secret)
	if told := r.opts.Hooks.Installation; told != nil {
		told(err)
	}
	if err == nil {
		return
	}
	about := corev1.ObjectReference{APIVersion: "v1", Kind: kindSecret, Namespace: r.installation.Namespace, Name: r.installation.Name}
	if secret != nil {
		about.UID = secret.UID
	}
	r.recordEvent(ctx, about, warningEvent(ReasonInstallation, err))
}

func (r *run) reconcileCluster(ctx context.Context, t task) error {
	u, _ := r.clusters.Get(t.Namespace, t.Name).(*unstructured.Unstructured)
	if u == nil {
		return nil
	}
	began := time.Now()
	cluster, err := r.readCluster(u)
	if err != nil {
		r.reportPlan(t.NamespacedName, began, err)
		r.recordEvent(ctx, cluster.objectReference(), warningEvent(ReasonCluster, err))
		return nil
	}
	secrets, configMaps := r.base.Version(r.secrets, t.Namespace), r.base.Version(r.configMaps, t.Namespace) // before held
	held := r.cachedObjects(cluster)
	if !r.caughtUp(cluster, held, secrets, configMaps, began) {
		r.queue.AddAfter(t, time.Second) // the event comes sooner
		return nil
	}
	plan := func(found *Object) (Action, error) {
		held.addFound(found)
		action, err := Plan(cluster, held, r.opts.Config)
		r.reportPlan(t.NamespacedName, began, err)
		return action, err
	}
	return r.applyPlan(ctx, t, cluster.objectReference(), plan)
}

func (r *run) reportPlan(cluster types.NamespacedName, began time.Time, err error) {
	if planned := r.opts.Hooks.Planned; planned != nil {
		planned(cluster, time.Since(began), err)
	}
}

// applyPlan plans, and writes. If an object exists that the caches don't have,
// since they hold only ours, it plans once more with that object.
func (r *run) applyPlan(ctx context.Context, t task, about corev1.ObjectReference, plan func(found *Object) (Action, error)) error {
	var found *Object
	for {
		action, _ := plan(found) // an error was told of, and is not mended by trying again
		var err error
		if found, err = r.writeObjects(ctx, action.Writes); err != nil {
			return err
		}
		if found != nil {
			continue
		}
		for _, e := range action.Events {
			r.recordEvent(ctx, about, e)
		}
		if action.After > 0 {
			r.queue.AddAfter(t, controller.Spread(action.After))
		}
		return nil
	}
}

func (r *run) readCluster(u *unstructured.Unstructured) (Cluster, error) {
	u = u.DeepCopy()
	c, err := ReadCluster(u)
	if err == nil && r.opts.Facts != nil {
		r.opts.Facts(u, &c.Facts)
	}
	return c, err
}

func (c Cluster) objectReference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: c.APIVersion, Kind: "Cluster", Namespace: c.Namespace, Name: c.Name, UID: c.UID}
}

// cachedObjects is what the caches hold. Plan does not write to it.
func (r *run) cachedObjects(c Cluster) Held {
	named := func(suffix string) types.NamespacedName {
		return types.NamespacedName{Namespace: c.Namespace, Name: c.Name + suffix}
	}
	values, _ := r.configMaps.Get(c.Namespace, c.Name+SuffixValues).(*corev1.ConfigMap)
	return Held{
		Installation: r.installations.Secret(r.installation),
		Override:     r.overrides.Secret(named(SuffixOverride)),
		SystemdProxy: r.secrets.Secret(named(SuffixSystemdProxy)),
		Secret:       r.secrets.Secret(named(SuffixValues)),
		ConfigMap:    values,
	}
}

// addFound puts an object that was found in its place.
func (h *Held) addFound(found *Object) {
	switch {
	case found == nil:
	case found.ConfigMap != nil:
		h.ConfigMap = found.ConfigMap
	case strings.HasSuffix(found.Secret.Name, SuffixSystemdProxy):
		h.SystemdProxy = found.Secret
	default:
		h.Secret = found.Secret
	}
}

// caughtUp reports whether the caches, which were at these versions at least,
// show what was written for the Cluster.
func (r *run) caughtUp(c Cluster, held Held, secrets, configMaps string, now time.Time) bool {
	shows := func(at, kind, name string, cached metav1.Object) bool {
		return r.tracker.caughtUp(kind+" "+c.Namespace+"/"+name, cached, at, now)
	}
	systemd := shows(secrets, kindSecret, c.Name+SuffixSystemdProxy, secretObject(held.SystemdProxy))
	values := shows(secrets, kindSecret, c.Name+SuffixValues, secretObject(held.Secret))
	var m metav1.Object
	if held.ConfigMap != nil {
		m = held.ConfigMap
	}
	return shows(configMaps, kindConfigMap, c.Name+SuffixValues, m) && systemd && values
}

// secretObject is a nil interface for a nil Secret.
func secretObject(s *corev1.Secret) metav1.Object {
	if s == nil {
		return nil
	}
	return s
}

// reconcileNamespace writes the namespace's Secret of Options.EnvSecrets.
func (r *run) reconcileNamespace(ctx context.Context, t task) error {
	name := types.NamespacedName{Namespace: t.Namespace, Name: r.opts.EnvSecrets.Name}
	ns := r.namespaces.Namespace(t.Namespace)
	if ns == nil || ns.DeletionTimestamp != nil || name == r.installation {
		return nil
	}
	at := r.base.Version(r.envSecrets, t.Namespace) // before held
	held := r.envSecrets.Secret(name)
	if !r.tracker.caughtUp(kindSecret+" "+name.String(), secretObject(held), at, time.Now()) {
		r.queue.AddAfter(t, time.Second)
		return nil
	}
	about := corev1.ObjectReference{APIVersion: "v1", Kind: kindSecret, Namespace: name.Namespace, Name: name.Name}
	return r.applyPlan(ctx, t, about, func(found *Object) (Action, error) {
		if found != nil {
			held = found.Secret
		}
		action, err := PlanEnv(name.Namespace, name.Name, r.installations.Secret(r.installation), held, r.opts.Config)
		if planned := r.opts.Hooks.PlannedEnv; planned != nil {
			planned(t.Namespace, err)
		}
		return action, err
	})
}
