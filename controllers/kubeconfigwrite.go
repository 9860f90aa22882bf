package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// What is written, in metrics and errors.
const (
	writeCreate     = "create"
	writeUpdate     = "update"
	writeDelete     = "delete"
	conditionWrites = "condition"
)

const (
	maxConditionMsg = 32768 // bytes
	// patientTimes is how often a write fails, unless the API server refuses it for
	// what it is, before that is told of.
	patientTimes = 3
	// scopeTime is how long what the API server says of a Cluster holds for the writes of one plan.
	scopeTime = time.Second
)

var errUnconditional = errors.New("controllers: an Update or Delete without the resourceVersion that was read")

// listWrites returns an Action for each Secret that is to be written, in their order.
func listWrites(action provider.Action) (writes []provider.Action) {
	if writeName(action) != "" {
		writes = append(writes, action)
	}
	s := action.Records
	if s == nil {
		return writes
	}
	records := provider.Action{Update: s, Managed: action.Managed}
	if s.ResourceVersion == "" {
		records.Create, records.Update = s, nil
	}
	if action.RecordsLast {
		return append(writes, records)
	}
	return append([]provider.Action{records}, writes...)
}

// applyAction writes the Secrets, then the Events and the condition, and returns when to
// plan again; 0 for never. A write that failed is planned again, later each time,
// whatever leads to plans until then.
func (k *kubeconfigRun) applyAction(ctx context.Context, u *unstructured.Unstructured, cluster provider.Cluster, action provider.Action, config provider.Config) time.Duration {
	key := nameOf(u)
	var checked time.Time
	check := func() error {
		began := time.Now()
		if began.Sub(checked) < scopeTime {
			return nil
		}
		err := checkScope(ctx, k.mgr.GetAPIReader(), u)
		if err == nil {
			checked = began
		}
		return err
	}
	writes := listWrites(action)
	k.state.keepFailures(key, writes)
	version := ""
	for _, write := range writes {
		what := writeName(write)
		failed, waits := k.state.failureOf(key, what, config.Now)
		if !waits {
			var err error
			if version, err = k.writeSecret(ctx, key, what, write, check); err == nil {
				continue
			}
			if k.isConflict(ctx, write, err) {
				return k.state.noteConflict(key)
			}
			log.FromContext(ctx).Error(err, "Write of a Secret")
			failed = k.state.noteFailure(key, what, err, config.Now)
		}
		if isRefusal(failed.err) || failed.times >= patientTimes {
			told := provider.WriteFailed(cluster, write, config, failed.err)
			k.tellEvents(u, told.Events, "")
			k.applyCondition(ctx, u, cluster, told, check)
		}
		return max(time.Until(failed.retryAt), time.Millisecond)
	}
	if len(writes) > 0 {
		k.state.change(key, func(c *clusterState) { c.conflicts = 0 })
	}
	k.tellEvents(u, action.Events, version)
	if wait := k.applyCondition(ctx, u, cluster, action, check); wait > 0 {
		return wait
	}
	if action.After > 0 {
		return spreadTime(action.After)
	}
	return 0
}

func (k *kubeconfigRun) tellEvents(u *unstructured.Unstructured, events []provider.Event, version string) {
	for _, e := range events {
		k.events.tell(u, e.Type, e.Reason, e.Message, version)
	}
}

// isRefusal reports whether the API server refuses what is to be written, or the
// writer: it will the next time, too.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsAlreadyExists(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// isConflict reports whether the Secret, or the Cluster, is another one than was planned
// for: the next plan sees it. A Secret that exists and lacks the label is never seen, and is a failure.
func (k *kubeconfigRun) isConflict(ctx context.Context, action provider.Action, err error) bool {
	if errors.Is(err, errCacheLate) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) && action.Create == nil {
		return true
	}
	if !apierrors.IsAlreadyExists(err) {
		return false
	}
	var secret corev1.Secret
	wanted := action.Create
	if k.mgr.GetAPIReader().Get(ctx, nameOf(wanted), &secret) != nil {
		return true
	}
	return secret.Labels[kubeconfig.ClusterNameLabel] == wanted.Labels[kubeconfig.ClusterNameLabel]
}

// writeSecret returns the Secret's new resourceVersion.
func (k *kubeconfigRun) writeSecret(ctx context.Context, cluster types.NamespacedName, what string, action provider.Action, check func() error) (string, error) {
	if err := check(); err != nil {
		return "", err
	}
	write, secret := k.writer.write, action.Create
	conditional := true
	switch {
	case action.Update != nil:
		secret = action.Update
		conditional = secret.ResourceVersion != ""
	case action.Delete != nil:
		write, secret = k.writer.delete, action.Delete
		conditional = secret.ResourceVersion != "" && secret.UID != ""
	}
	if !conditional {
		return "", errUnconditional
	}
	if err := write(ctx, secret); err != nil {
		return "", err
	}
	k.state.change(cluster, func(c *clusterState) {
		delete(c.failures, what)
	})
	return secret.ResourceVersion, nil
}

// applyCondition writes the condition to the Cluster's status, unless it has it already.
// It replaces another writer's condition only if this provider manages the Secret:
// there is one writer at a time. It returns when to try again; 0 if all is well.
func (k *kubeconfigRun) applyCondition(ctx context.Context, u *unstructured.Unstructured, cluster provider.Cluster, action provider.Action, check func() error) time.Duration {
	if action.Condition == nil {
		return 0
	}
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	now := time.Now()
	c := *action.Condition
	c.Message = printable.Text(c.Message, maxConditionMsg)
	var others metav1.Condition
	if has := cluster.Condition; has != nil {
		others = *has
		if has.Status == c.Status {
			c.LastTransitionTime = has.LastTransitionTime
		}
		if sameCondition(*has, c) {
			return 0
		}
	}
	if c.LastTransitionTime.IsZero() {
		c.LastTransitionTime = metav1.Time{Time: now}
	}
	refused := false
	k.state.change(key, func(s *clusterState) {
		refused = s.refused != nil && sameCondition(s.refused.wanted, c) && sameCondition(s.refused.others, others)
	})
	if refused && !action.Managed {
		return 0
	}
	if failed, waits := k.state.failureOf(key, conditionWrites, now); waits {
		return time.Until(failed.retryAt)
	}
	version := ""
	err := check()
	if err == nil {
		var opts []client.SubResourcePatchOption
		if action.Managed { // without force, a condition of another manager is a conflict
			opts = append(opts, client.ForceOwnership)
		}
		version, err = applyCondition(ctx, k.writer, u, &c, opts...)
	}
	switch {
	case errors.Is(err, errCacheLate):
		return cacheDelay // an event comes sooner
	case apierrors.IsNotFound(err):
		return 0 // the Cluster is gone
	case apierrors.IsConflict(err) && !action.Managed:
		k.state.change(key, func(s *clusterState) { s.refused = &refusedCondition{c, others} })
		return 0
	}
	k.writer.counts.count(conditionWrites, err)
	if err != nil {
		log.FromContext(ctx).Error(err, "Write of a condition")
		return time.Until(k.state.noteFailure(key, conditionWrites, err, now).retryAt)
	}
	log.FromContext(ctx).Info("Wrote the condition", "status", c.Status, "reason", c.Reason)
	k.state.change(key, func(s *clusterState) {
		s.condition = &conditionWrite{c, version}
		delete(s.failures, conditionWrites)
	})
	return 0
}

// sameCondition compares all but the times, which follow from the rest.
func sameCondition(a, b metav1.Condition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message && a.ObservedGeneration == b.ObservedGeneration
}

// applyCondition applies the condition to a Cluster, and not to one that was created again
// under its name. nil takes away what this manager of fields has applied before. It returns
// the new resourceVersion.
func applyCondition(ctx context.Context, to client.Client, cluster *unstructured.Unstructured, c *metav1.Condition, opts ...client.SubResourcePatchOption) (string, error) {
	u := namedCluster(cluster, nameOf(cluster), cluster.GetUID())
	if c != nil {
		entry, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
		if err == nil {
			err = unstructured.SetNestedSlice(u.Object, []any{entry}, clusterapi.ConditionsPath(u.GetAPIVersion())...)
		}
		if err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(u)
	if err != nil {
		return "", err
	}
	err = to.Status().Patch(ctx, u, client.RawPatch(types.ApplyPatchType, data), opts...)
	return u.GetResourceVersion(), err
}
