package provider

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/internal/controller"
)

const maxConditionMsg = 32768

// createEvent creates an Event. version is the resourceVersion that the Event refers
// to, if any.
func (r *run) createEvent(ctx context.Context, cluster Cluster, e Event, version string) {
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	fresh := func(name string, now time.Time) bool { return r.state.noteEvent(key, name, now) }
	tried, err := r.base.Tell(ctx, controller.Event{
		Type: e.Type, Reason: e.Reason, Message: e.Message, Version: version, Instance: r.opts.leaderElection().Instance(r.opts.Config.providerName()),
		Regarding: corev1.ObjectReference{
			APIVersion: cluster.APIVersion, Kind: "Cluster",
			Namespace: cluster.Namespace, Name: cluster.Name, UID: types.UID(cluster.UID),
		},
	}, fresh)
	if tried {
		r.reportWrite(key, WriteEvent, err)
	}
}

// applyCondition writes the condition to the Cluster's status, unless it has it already.
func (r *run) applyCondition(ctx context.Context, cluster Cluster, want *metav1.Condition) error {
	if want == nil {
		return nil
	}
	c := *want
	c.Message = controller.Cut(c.Message, maxConditionMsg)
	if has := cluster.Condition; has != nil && has.Status == c.Status {
		if has.Reason == c.Reason && has.Message == c.Message {
			return nil
		}
		c.LastTransitionTime = has.LastTransitionTime
	}
	if c.LastTransitionTime.IsZero() {
		c.LastTransitionTime = metav1.Now()
	}
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	version, err := r.patchStatus(ctx, cluster, c)
	if apierrors.IsNotFound(err) {
		return nil // the Cluster is gone
	}
	r.reportWrite(key, WriteCondition, err)
	if err != nil {
		return fmt.Errorf("provider: condition of the Cluster %s: %w", key, err)
	}
	r.state.noteCondition(key, c, version)
	return nil
}

// patchStatus returns the Cluster's new resourceVersion.
func (r *run) patchStatus(ctx context.Context, cluster Cluster, c metav1.Condition) (string, error) {
	entry := map[string]any{
		"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
		"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339),
	}
	if c.ObservedGeneration != 0 {
		entry["observedGeneration"] = c.ObservedGeneration
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(cluster.APIVersion)
	u.SetKind("Cluster")
	u.SetNamespace(cluster.Namespace)
	u.SetName(cluster.Name)
	if err := unstructured.SetNestedSlice(u.Object, []any{entry}, conditionsPath(cluster.APIVersion)...); err != nil {
		return "", err
	}
	// With the UID, a Cluster that was created again doesn't get it.
	u.SetUID(types.UID(cluster.UID))
	made, err := r.base.Dynamic.Resource(r.clusterGVR).Namespace(cluster.Namespace).
		ApplyStatus(ctx, cluster.Name, u, metav1.ApplyOptions{FieldManager: r.fieldManager(), Force: true})
	if err != nil || made == nil {
		return "", err
	}
	return made.GetResourceVersion(), nil
}
