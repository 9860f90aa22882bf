package controllers_test

import (
	"context"
	"log"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/causewayproject/causeway/controllers"
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
		// Beside cluster-apps-operator, which writes objects with the names by default.
		ValuesName: "proxy-values", SystemdName: "machine-proxies",
	}}
	if err := r.SetupWithManager(context.Background(), mgr, controller.Options{MaxConcurrentReconciles: 8}); err != nil {
		log.Fatal(err)
	}
	log.Fatal(mgr.Start(ctrl.SetupSignalHandler()))
}
