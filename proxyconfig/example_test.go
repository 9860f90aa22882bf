package proxyconfig_test

import (
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
)

// The drop-in of systemd for a cluster's machines.
func Example() {
	const proxy = "http://user:p%40ss@proxy.example.com:3128"
	merged, err := proxyconfig.Layers{
		Installation: proxyconfig.Config{HTTPSProxy: proxy, NoProxy: "internal.example.com"},
		Cluster:      noproxy.Cluster{PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/12"}},
	}.Merge()
	if err != nil {
		log.Fatal(err)
	}
	dropIn, err := merged.SystemdDropIn()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(dropIn) // systemd reads %% as %
	// Output:
	// [Service]
	// Environment="HTTPS_PROXY=http://user:p%%40ss@proxy.example.com:3128"
	// Environment="https_proxy=http://user:p%%40ss@proxy.example.com:3128"
	// Environment="NO_PROXY=localhost,127.0.0.1,svc,cluster.local,cluster.local.,kubernetes,kubernetes.default,10.96.0.0/12,10.244.0.0/16,internal.example.com"
	// Environment="no_proxy=localhost,127.0.0.1,svc,cluster.local,cluster.local.,kubernetes,kubernetes.default,10.96.0.0/12,10.244.0.0/16,internal.example.com"
}

// A password that is not percent-encoded is refused: programs would differ
// about where it ends.
func ExampleConfig_Validate() {
	fmt.Println(proxyconfig.Config{HTTPSProxy: "http://user:p@ss@proxy.example.com:3128"}.Validate())
	// Output:
	// proxyconfig: HTTPSProxy: more than one @; percent-encode what is not a letter, a digit or one of -._~ in the user name and the password, such as @ as %40 and % as %25
}

// A pod that somebody else makes gets the variables. The password stays in a
// Secret of the pod's namespace.
func ExampleInjector_Inject() {
	injector, err := proxyconfig.NewInjector(proxyconfig.Options{
		Config: proxyconfig.Config{HTTPSProxy: "http://user:p%40ss@proxy.example.com:3128", NoProxy: ".svc"},
		Secret: "proxy",
	})
	if err != nil {
		log.Fatal(err)
	}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example"}}}
	injector.Inject(&spec)
	for _, v := range spec.Containers[0].Env {
		if v.ValueFrom != nil {
			fmt.Println(v.Name, "from Secret", v.ValueFrom.SecretKeyRef.Name, "key", v.ValueFrom.SecretKeyRef.Key)
			continue
		}
		fmt.Println(v.Name, v.Value)
	}
	// Output:
	// HTTPS_PROXY from Secret proxy key HTTPS_PROXY
	// https_proxy from Secret proxy key HTTPS_PROXY
	// NO_PROXY .svc,$(KUBERNETES_SERVICE_HOST)
	// no_proxy .svc,$(KUBERNETES_SERVICE_HOST)
}
