package controllers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

// KubeconfigWebhookPath is where the manager's webhook server serves a KubeconfigWebhook.
const KubeconfigWebhookPath = "/kubeconfigs"

// maxKubeconfig is the longest kubeconfig that the webhook reads. YAML becomes a hundred
// times as large when it is parsed; the certificates of an ordinary one make 6 KiB.
const maxKubeconfig = 128 << 10

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

	logged atomic.Int64 // the second of the last line in the log
}

// SetupWithManager registers w with the manager's webhook server, at
// [KubeconfigWebhookPath]. Options.WebhookServer of the manager says where that listens:
// let it be a [NewWebhookServer], whose bounds this webhook needs.
func (w *KubeconfigWebhook) SetupWithManager(mgr manager.Manager) error {
	mgr.GetWebhookServer().Register(KubeconfigWebhookPath, webhook.ReviewFunc(w.review))
	return nil
}

// secretData is what [provider.RestoreRoute] reads of a Secret.
type secretData struct {
	Metadata struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Data map[string][]byte `json:"data"`
}

func (s *secretData) secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: s.Metadata.Labels, Annotations: s.Metadata.Annotations}, Data: s.Data}
}

// review decides about one write.
func (w *KubeconfigWebhook) review(ctx context.Context, req *webhook.Request) ([]webhook.Operation, error) {
	var old, written secretData
	if json.Unmarshal(req.OldObject, &old) != nil || json.Unmarshal(req.Object, &written) != nil {
		return nil, nil // a CREATE, which has no old object, or no Secrets
	}
	if len(written.Data[kubeconfig.SecretKey]) > maxKubeconfig {
		return nil, nil
	}
	value, ok := provider.RestoreRoute(old.secret(), written.secret(), w.Config)
	if !ok {
		return nil, nil
	}
	if now := time.Now().Unix(); w.logged.Swap(now) != now { // anybody may ask
		ctrllog.FromContext(ctx).Info("put the route back", "namespace", req.Namespace, "name", req.Name)
	}
	return []webhook.Operation{{Op: "replace", Path: "/data/" + kubeconfig.SecretKey, Value: value}}, nil
}

// drainTime is how long the webhook server waits for answers at its end.
const drainTime = 10 * time.Second

// webhookServer is a manager's webhook server.
type webhookServer struct {
	ctrlwebhook.Server // it registers handlers, and measures them
	address            string
	server             webhook.Server
	listening          atomic.Bool
}

// NewWebhookServer returns a manager's webhook server on proxyconfig/webhook's [webhook.Server], which
// bounds what clients cost that are no API server: controller-runtime's own takes 7 MiB of
// each of any number. It listens at address once the manager is started, and drains for ten
// seconds. config is required, with a certificate; GetCertificate of a [webhook.Certificate]
// follows its files.
func NewWebhookServer(address string, config *tls.Config) ctrlwebhook.Server {
	mux := http.NewServeMux()
	s := &webhookServer{Server: ctrlwebhook.NewServer(ctrlwebhook.Options{WebhookMux: mux}), address: address}
	s.server = webhook.Server{Handler: mux, TLS: config, Grace: drainTime}
	return s
}

// Start serves until ctx ends.
func (s *webhookServer) Start(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("webhook server: %w", err)
	}
	s.listening.Store(true)
	defer s.listening.Store(false)
	return s.server.Serve(ctx, l)
}

// StartedChecker tells whether it listens.
func (s *webhookServer) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !s.listening.Load() {
			return errors.New("the webhook server does not listen")
		}
		return nil
	}
}
