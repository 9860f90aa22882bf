package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/internal/controller"
	"github.com/causewayproject/causeway/kubeconfig"
)

// applyAction writes the Secret, then the Events and the condition. After a write that
// failed the Cluster is planned again; the same write is never repeated.
func (r *run) applyAction(ctx context.Context, cluster Cluster, action Action) error {
	version, err := r.writeSecret(ctx, cluster, action)
	if err != nil {
		return err
	}
	for _, e := range action.Events {
		r.createEvent(ctx, cluster, e, version)
	}
	return r.applyCondition(ctx, cluster, action.Condition)
}

const secretKind = "Secret" // in errors

var errUnconditional = errors.New("provider: an Update or Delete without the resourceVersion that was read")

// writeSecret returns the Secret's new resourceVersion; empty if nothing was to be
// written.
func (r *run) writeSecret(ctx context.Context, cluster Cluster, action Action) (string, error) {
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	w := secretWrite{at: time.Now()}
	var (
		kind Write
		err  error
	)
	switch {
	case action.Create != nil:
		kind = WriteCreate
		w, err = r.createSecret(ctx, cluster, action.Create, w)
	case action.Update != nil:
		kind = WriteUpdate
		w, err = r.updateSecret(ctx, action.Update, w)
	case action.Delete != nil:
		kind = WriteDelete
		w, err = r.deleteSecret(ctx, action.Delete, w)
	default:
		return "", nil
	}
	if err == nil {
		r.state.noteWrite(key, w)
	}
	r.reportWrite(key, kind, err)
	return w.version, err
}

func (r *run) reportWrite(key types.NamespacedName, kind Write, err error) {
	if wrote := r.opts.Hooks.Wrote; wrote != nil {
		wrote(key, kind, err)
	}
}

func (r *run) fieldManager() string { return program + "-" + r.opts.Config.providerName() }

func (r *run) createSecret(ctx context.Context, cluster Cluster, secret *corev1.Secret, w secretWrite) (secretWrite, error) {
	w.secret, w.created = controller.NameOf(secret), true
	made, err := r.base.Kube.CoreV1().Secrets(secret.Namespace).Create(ctx, secret, metav1.CreateOptions{FieldManager: r.fieldManager()})
	if err != nil {
		if apierrors.IsAlreadyExists(err) && r.secrets.Secret(w.secret) == nil {
			r.reportUnlabelled(ctx, cluster, w.secret)
		}
		return w, r.base.WriteError(string(WriteCreate), secretKind, w.secret, err)
	}
	w.version = made.ResourceVersion
	return w, nil
}

// reportUnlabelled creates an Event if the Secret is not in the cache because it lacks
// the label, and not because the cache is late.
func (r *run) reportUnlabelled(ctx context.Context, cluster Cluster, name types.NamespacedName) {
	secret, err := r.base.Kube.CoreV1().Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil || secret.Labels[kubeconfig.ClusterNameLabel] == cluster.Name {
		return
	}
	r.createEvent(ctx, cluster, Event{
		Type:   corev1.EventTypeWarning,
		Reason: "SecretNotLabelled",
		Message: fmt.Sprintf("the Secret %s is in the way: it has no label %s=%s, without which neither Cluster API nor the provider sees it",
			name.Name, kubeconfig.ClusterNameLabel, cluster.Name),
	}, "")
}

func (r *run) updateSecret(ctx context.Context, secret *corev1.Secret, w secretWrite) (secretWrite, error) {
	w.secret = controller.NameOf(secret)
	if secret.ResourceVersion == "" {
		return w, errUnconditional
	}
	made, err := r.base.Kube.CoreV1().Secrets(secret.Namespace).Update(ctx, secret, metav1.UpdateOptions{FieldManager: r.fieldManager()})
	if err != nil {
		return w, r.base.WriteError(string(WriteUpdate), secretKind, w.secret, err)
	}
	w.version = made.ResourceVersion
	return w, nil
}

func (r *run) deleteSecret(ctx context.Context, secret *corev1.Secret, w secretWrite) (secretWrite, error) {
	w.secret, w.version, w.deleted = controller.NameOf(secret), secret.ResourceVersion, secret.UID
	if secret.ResourceVersion == "" || secret.UID == "" {
		return w, errUnconditional
	}
	err := r.base.Kube.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &w.deleted, ResourceVersion: &w.version},
	})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return w, r.base.WriteError(string(WriteDelete), secretKind, w.secret, err)
}
