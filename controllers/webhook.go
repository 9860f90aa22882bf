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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
// stored, as [provider.RestoreRoute] decides: no reader sees what others write without it, be it
// an update, or a Secret that was deleted and is made anew. It answers on each replica, the leader
// or not, from what the manager's cache has of the Secrets with a [provider.RecordsName], and has no
// side effects.
//
// It refuses no write. Register it for CREATE and UPDATE of Secrets with the label
// cluster.x-k8s.io/cluster-name. The manifest in examples/deploy/components also has
// conditions, so that the API server sends no other Secret. The failurePolicy of the
// registration says what happens while the webhook does not answer: also while the cache is not
// filled, which a request waits for, for a second at most.
type KubeconfigWebhook struct {
	// Config is the KubeconfigReconciler's. Only its Name is read.
	Config provider.Config
	// Namespaces are the KubeconfigReconciler's: the manager's cache knows nothing of others, where
	// each write is left as it is. If empty, all.
	Namespaces []string

	cache  cache.Cache
	live   client.Reader
	logged atomic.Int64 // the second of the last line in the log
}

// maxCacheWait is how long a request waits for the cache. The manifest's timeout is longer.
const maxCacheWait = time.Second

// SetupWithManager registers w with the manager's webhook server, at
// [KubeconfigWebhookPath]. Options.WebhookServer of the manager says where that listens:
// let it be a [NewWebhookServer], whose bounds this webhook needs.
func (w *KubeconfigWebhook) SetupWithManager(mgr manager.Manager) error {
	w.cache, w.live = mgr.GetCache(), mgr.GetAPIReader()
	mgr.GetWebhookServer().Register(KubeconfigWebhookPath, webhook.ReviewFunc(w.review))
	return nil
}

// memoryOf reads what is remembered about a Secret.
func (w *KubeconfigWebhook) memoryOf(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, maxCacheWait)
	defer cancel()
	if !w.cache.WaitForCacheSync(ctx) {
		return nil, errors.New("the cache is not filled yet")
	}
	name.Name = provider.RecordsName(name.Name)
	return getObject(ctx, wholeCache{w.cache, w.live}, name, &corev1.Secret{})
}

// review decides about one write.
func (w *KubeconfigWebhook) review(ctx context.Context, req *webhook.Request) ([]webhook.Operation, error) {
	var old, written corev1.Secret
	if !isWatched(w.Namespaces, req.Namespace) || json.Unmarshal(req.Object, &written) != nil || len(req.OldObject) > 0 && json.Unmarshal(req.OldObject, &old) != nil {
		return nil, nil // others look after it, or it is no Secret
	}
	if len(written.Data[kubeconfig.SecretKey]) > maxKubeconfig {
		return nil, nil
	}
	if len(old.Data[kubeconfig.SecretKey]) > maxKubeconfig {
		delete(old.Data, kubeconfig.SecretKey)
	}
	memory, err := w.memoryOf(ctx, types.NamespacedName{Namespace: req.Namespace, Name: req.Name})
	if err != nil {
		return nil, err
	}
	value, ok := provider.RestoreRoute(&old, &written, memory, w.Config)
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
