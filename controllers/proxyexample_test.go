package controllers_test

import (
	"context"
	"log"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// In a program: the manager's cache keeps of Clusters what is read.
func ExampleProxyReconciler() {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{Cache: controllers.CacheOptions()})
	if err != nil {
		log.Fatal(err)
	}
	r := controllers.ProxyReconciler{Config: propagate.Config{
		Installation: "system/proxy",
		// In place of cluster-apps-operator: what charts read besides the proxies.
		Further: func(c propagate.Cluster) (proxyconfig.FurtherValues, error) {
			return proxyconfig.FurtherValues{ConfigMap: map[string]any{"clusterID": c.Name, "baseDomain": "example.com"}}, nil
		},
	}}
	if err := r.SetupWithManager(context.Background(), mgr, controller.Options{MaxConcurrentReconciles: 8}); err != nil {
		log.Fatal(err)
	}
	log.Fatal(mgr.Start(ctrl.SetupSignalHandler()))
}
