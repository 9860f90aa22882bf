// Controller-runtime runs the kubeconfig provider inside a controller-runtime
// manager, beside a controller that connects with the kubeconfigs: it logs how
// many nodes each cluster has.
//
//	go run . -proxy-url http://proxy.example.com:3128
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

func main() {
	var defaults provider.Settings
	flag.StringVar(&defaults.ProxyURL, "proxy-url", "", "`URL` of the proxy that leads to the clusters")
	lease := flag.String("leader-election", "", "`namespace` of the Lease; empty for none")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	ctx := ctrl.SetupSignalHandler()
	m, err := newManager(ctx, ctrl.GetConfigOrDie(), defaults, *lease)
	if err == nil {
		err = m.Start(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newManager returns a manager with the provider and the controller in it. The
// manager elects the leader for both.
func newManager(ctx context.Context, config *rest.Config, defaults provider.Settings, lease string) (manager.Manager, error) {
	m, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:                       metrics.Options{BindAddress: "0"},
		LeaderElection:                lease != "",
		LeaderElectionNamespace:       lease,
		LeaderElectionID:              "controller-runtime-example",
		LeaderElectionReleaseOnCancel: true,
		Cache:                         controllers.CacheOptions(), // Secrets of Clusters, and no others
	})
	if err != nil {
		return nil, err
	}
	p := &controllers.KubeconfigReconciler{Config: provider.Config{Defaults: defaults}}
	if err := p.SetupWithManager(ctx, m, controller.Options{MaxConcurrentReconciles: 4}); err != nil {
		return nil, err
	}
	return m, ctrl.NewControllerManagedBy(m).Named("nodes").For(&corev1.Secret{}).Complete(&reconciler{Client: m.GetClient()})
}

type reconciler struct{ client.Client }

// Reconcile logs the number of a cluster's nodes.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !strings.HasSuffix(req.Name, "-kubeconfig") {
		return ctrl.Result{}, nil
	}
	var secret corev1.Secret
	if err := r.Get(ctx, req.NamespacedName, &secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	n, err := nodes(ctx, &secret, r.Scheme())
	if err != nil {
		return ctrl.Result{}, err
	}
	log.FromContext(ctx).Info("reached", "nodes", n)
	return ctrl.Result{RequeueAfter: time.Minute}, nil
}
