package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// reporter is who Events are from.
	reporter = Prefix + "kubeconfig-provider"
	// eventWindow is the time in which the same Event is told once, unless a
	// write belongs to it.
	eventWindow = time.Hour

	maxNote         = 1024 // bytes, as the API server has it
	maxConditionMsg = 32768
)

// event creates an Event. Its name is a hash of what it says, so that it
// is told once, whoever leads: version is the resourceVersion that it is
// about, if any. client-go's recorder would leave goroutines that nobody can wait for.
func (r *run) event(ctx context.Context, cluster Cluster, e Event, version string) {
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	now := time.Now()
	if version == "" {
		version = strconv.FormatInt(now.Unix()/int64(eventWindow/time.Second), 10)
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", cluster.UID, e.Type, e.Reason, e.Message, version))
	name := fmt.Sprintf("%s.%s", cut(cluster.Name, 200), hex.EncodeToString(hash[:8]))
	if !r.ledger.tell(key, name, now) {
		return
	}
	_, err := r.kube.EventsV1().Events(cluster.Namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: reporter,
		ReportingInstance:   cut(r.opts.instance(), 128),
		Action:              "Plan",
		Type:                e.Type,
		Reason:              e.Reason,
		Note:                cut(e.Message, maxNote),
		Regarding: corev1.ObjectReference{
			APIVersion: cluster.APIVersion, Kind: "Cluster",
			Namespace: cluster.Namespace, Name: cluster.Name, UID: types.UID(cluster.UID),
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return // told by the leader before
	}
	r.wrote(key, WriteEvent, err)
}

// cut shortens text to n bytes, at a rune's border.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// apply writes the condition to the Cluster's status, unless it is there.
func (r *run) apply(ctx context.Context, cluster Cluster, want *metav1.Condition) error {
	if want == nil {
		return nil
	}
	c := *want
	c.Message = cut(c.Message, maxConditionMsg)
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
	r.wrote(key, WriteCondition, err)
	if err != nil {
		return fmt.Errorf("provider: condition of the Cluster %s: %w", key, err)
	}
	r.ledger.appliedCondition(key, c, version)
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
	// The UID keeps it from a Cluster that was made anew.
	u.SetUID(types.UID(cluster.UID))
	made, err := r.dynamic.Resource(r.clusterGVR).Namespace(cluster.Namespace).
		ApplyStatus(ctx, cluster.Name, u, metav1.ApplyOptions{FieldManager: r.manager(), Force: true})
	if err != nil || made == nil {
		return "", err
	}
	return made.GetResourceVersion(), nil
}
