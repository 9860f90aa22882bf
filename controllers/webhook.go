package controllers

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// KubeconfigWebhookPath is where the manager's webhook server serves a KubeconfigWebhook.
const KubeconfigWebhookPath = "/kubeconfigs"

// KubeconfigWebhook puts a lost route back into a kubeconfig Secret before it is
// stored, as [provider.RestoreRoute] decides: no reader sees what Cluster API's
// regeneration leaves. It answers on each replica, the leader or not, reads nothing
// of the API server, and has no side effects.
//
// It refuses no write. Register it for the UPDATE of Secrets with the label
// cluster.x-k8s.io/cluster-name. The manifest in examples/deploy/components also has
// conditions, so that the API server sends no other Secret. The failurePolicy of the
// registration says what happens while the webhook does not answer.
type KubeconfigWebhook struct {
	// Config is the KubeconfigReconciler's. Only its Name is read.
	Config provider.Config
}

var _ webhook.AdmissionHandler = (*KubeconfigWebhook)(nil)

// SetupWithManager registers w with the manager's webhook server, at
// [KubeconfigWebhookPath]. Options.WebhookServer of the manager says where that listens.
func (w *KubeconfigWebhook) SetupWithManager(mgr manager.Manager) error {
	mgr.GetWebhookServer().Register(KubeconfigWebhookPath, &webhook.Admission{Handler: w})
	return nil
}

// Handle decides about one write. It is safe for concurrent use.
func (w *KubeconfigWebhook) Handle(ctx context.Context, req webhook.AdmissionRequest) webhook.AdmissionResponse {
	var old, written corev1.Secret
	if json.Unmarshal(req.OldObject.Raw, &old) != nil || json.Unmarshal(req.Object.Raw, &written) != nil {
		return webhook.Allowed("") // a CREATE, which has no old object, or no Secrets
	}
	value, ok := provider.RestoreRoute(&old, &written, w.Config)
	if !ok {
		return webhook.Allowed("")
	}
	log.FromContext(ctx).Info("put the route back")
	return webhook.Patched("", webhook.JSONPatchOp{Operation: "replace", Path: "/data/" + kubeconfig.SecretKey, Value: value})
}
