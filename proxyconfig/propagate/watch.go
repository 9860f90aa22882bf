package propagate

import (
	"context"
	"maps"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/causewayproject/causeway/internal/controller"
)

// run is a run of a Propagator.
type run struct {
	*Propagator
	clusterGVR schema.GroupVersionResource
	queue      workqueue.TypedRateLimitingInterface[task]

	clusters, secrets, configMaps, overrides controller.Caches
	installations, namespaces, envSecrets    controller.Caches

	tracker   *writeTracker
	informers sync.WaitGroup
}

// task is what is queued: a Cluster, a namespace for its Secret of EnvSecrets,
// which has no name, or the installation's Secret, which has neither.
type task struct {
	kind taskKind
	types.NamespacedName
}

type taskKind int

const (
	clusterTask taskKind = iota
	namespaceTask
	installationTask
)

func (p *Propagator) newRun(gvr schema.GroupVersionResource) *run {
	return &run{
		Propagator: p, clusterGVR: gvr, queue: controller.NewQueue[task](), tracker: newWriteTracker(),
		clusters: controller.Caches{}, secrets: controller.Caches{}, configMaps: controller.Caches{}, overrides: controller.Caches{},
		installations: controller.Caches{}, namespaces: controller.Caches{}, envSecrets: controller.Caches{},
	}
}

// waitStopped waits for what the run has started; its context has ended.
func (r *run) waitStopped() {
	r.queue.ShutDown()
	r.informers.Wait()
}

// watch starts the informers. None sees a Secret that is neither labelled nor
// the installation's.
func (r *run) watch(ctx context.Context) error {
	ours := labels.Set(r.opts.Config.Labels()).String()
	for _, ns := range controller.Scopes(r.opts.Namespaces) {
		r.clusters[ns] = dynamicinformer.NewFilteredDynamicInformer(r.base.Dynamic, r.clusterGVR, ns, 0, cache.Indexers{}, nil).Informer()
		r.secrets[ns] = r.secretInformer(ns, ours, "")
		r.overrides[ns] = r.secretInformer(ns, LabelOverride, "")
		r.configMaps[ns] = coreinformers.NewFilteredConfigMapInformer(r.base.Kube, ns, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
			o.LabelSelector = ours
		})
	}
	r.installations[r.installation.Namespace] = r.secretInformer(r.installation.Namespace, "", r.installation.Name)
	if r.envs != nil {
		r.namespaces[""] = coreinformers.NewFilteredNamespaceInformer(r.base.Kube, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
			o.LabelSelector = r.envs.String()
		})
		r.envSecrets[""] = r.secretInformer("", ours, r.opts.EnvSecrets.Name)
	}
	for _, w := range []struct {
		caches  controller.Caches
		what    string
		trim    cache.TransformFunc
		changed func(old, new any)
	}{
		{r.clusters, "Clusters", r.trimCluster, r.clusterChanged},
		{r.secrets, "Secrets", dropManagedFields, r.secretChanged},
		{r.configMaps, "ConfigMaps", dropManagedFields, r.configMapChanged},
		{r.overrides, "Secrets of overrides", dropManagedFields, r.overrideChanged},
		{r.installations, "Secret " + r.installation.String(), dropManagedFields, r.installationChanged},
		{r.namespaces, "Namespaces", trimNamespace, r.namespaceChanged},
		{r.envSecrets, "Secrets " + envName(r.opts.EnvSecrets), dropManagedFields, r.envSecretChanged},
	} {
		for _, informer := range w.caches {
			if err := r.base.Start(ctx, &r.informers, informer, w.what, w.trim, w.changed); err != nil {
				return err
			}
		}
	}
	return nil
}

func envName(e *EnvSecrets) string {
	if e == nil {
		return ""
	}
	return e.Name
}

// secretInformer selects by label, and by name if one is given.
func (r *run) secretInformer(namespace, label, name string) cache.SharedIndexInformer {
	return coreinformers.NewFilteredSecretInformer(r.base.Kube, namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = label
		if name != "" {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		}
	})
}

// dropManagedFields keeps all but managedFields, since it is written back. (The API server
// keeps them if an update leaves them out.)
func dropManagedFields(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}

func trimNamespace(object any) (any, error) {
	ns, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: ns.Name, ResourceVersion: ns.ResourceVersion, DeletionTimestamp: ns.DeletionTimestamp},
	}, nil
}

func (r *run) trimCluster(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok || r.opts.Facts != nil {
		return dropManagedFields(object)
	}
	return controller.Trim(u, func(annotation string) bool { return annotation == controller.PausedAnnotation },
		[]string{"spec", "paused"}, []string{"spec", "controlPlaneEndpoint"}, []string{"spec", "clusterNetwork"}), nil
}

// The methods below receive changes, and queue the tasks that these concern.

func (r *run) clusterChanged(old, new any) {
	u, ok := controller.Either[*unstructured.Unstructured](old, new)
	if !ok {
		return
	}
	before, _ := old.(*unstructured.Unstructured)
	after, _ := new.(*unstructured.Unstructured)
	if before == nil || after == nil || !sameCluster(before, after) {
		r.queue.Add(task{NamespacedName: controller.NameOf(u)})
	}
}

// sameCluster compares what the cache keeps, but for the resourceVersion.
func sameCluster(a, b *unstructured.Unstructured) bool {
	return a.GetUID() == b.GetUID() &&
		(a.GetDeletionTimestamp() == nil) == (b.GetDeletionTimestamp() == nil) &&
		maps.Equal(a.GetAnnotations(), b.GetAnnotations()) && maps.Equal(a.GetLabels(), b.GetLabels()) &&
		reflect.DeepEqual(a.Object["spec"], b.Object["spec"]) && reflect.DeepEqual(a.Object["status"], b.Object["status"])
}

// queueCluster queues the Cluster that an object of this name belongs to.
func (r *run) queueCluster(object metav1.Object, suffixes ...string) {
	for _, suffix := range suffixes {
		if name, ok := strings.CutSuffix(object.GetName(), suffix); ok {
			r.queue.Add(task{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}})
		}
	}
}

func (r *run) secretChanged(old, new any) {
	if s, ok := controller.Either[*corev1.Secret](old, new); ok {
		r.queueCluster(s, SuffixValues, SuffixSystemdProxy)
	}
}

func (r *run) configMapChanged(old, new any) {
	if m, ok := controller.Either[*corev1.ConfigMap](old, new); ok {
		r.queueCluster(m, SuffixValues)
	}
}

func (r *run) overrideChanged(old, new any) {
	if s, ok := controller.Either[*corev1.Secret](old, new); ok {
		r.queueCluster(s, SuffixOverride)
	}
}

func (r *run) installationChanged(old, new any) {
	before, _ := old.(*corev1.Secret)
	after, _ := new.(*corev1.Secret)
	if before != nil && after != nil && reflect.DeepEqual(before.Data, after.Data) {
		return
	}
	r.queue.Add(task{kind: installationTask})
	for _, informer := range r.clusters {
		for _, object := range informer.GetStore().List() {
			if u, ok := object.(*unstructured.Unstructured); ok {
				r.queue.Add(task{NamespacedName: controller.NameOf(u)})
			}
		}
	}
	for _, informer := range r.namespaces {
		for _, name := range informer.GetStore().ListKeys() {
			r.queue.Add(task{namespaceTask, types.NamespacedName{Namespace: name}})
		}
	}
}

func (r *run) namespaceChanged(old, new any) {
	if ns, ok := new.(*corev1.Namespace); ok && old == nil {
		r.queue.Add(task{namespaceTask, types.NamespacedName{Namespace: ns.Name}})
	}
}

func (r *run) envSecretChanged(old, new any) {
	if s, ok := controller.Either[*corev1.Secret](old, new); ok {
		r.queue.Add(task{namespaceTask, types.NamespacedName{Namespace: s.Namespace}})
	}
}
