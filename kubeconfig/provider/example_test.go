package provider_test

import (
	"fmt"
	"log"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// What is to be done for a Cluster whose kubeconfig the control plane makes: a
// new route is probed before it is written.
func ExamplePlan() {
	config, err := kubeconfig.Spec{
		Name:        "prod",
		Endpoint:    kubeconfig.Endpoint{Host: "192.0.2.10", Port: 6443},
		CA:          pki.NewCA("kubernetes").CertPEM(),
		Credentials: kubeconfig.Credentials{Token: "token"},
	}.Build()
	if err != nil {
		log.Fatal(err)
	}
	made, err := kubeconfig.Secret("prod", "default", config, &metav1.OwnerReference{Kind: "KubeadmControlPlane", Name: "prod"})
	if err != nil {
		log.Fatal(err)
	}
	cluster := provider.Cluster{
		Namespace: "default", Name: "prod", UID: "1b4e28ba", APIVersion: "cluster.x-k8s.io/v1beta2",
		Endpoint: kubeconfig.Endpoint{Host: "192.0.2.10", Port: 6443}, HasControlPlane: true,
		Annotations: map[string]string{provider.AnnotationProxyURL: "http://proxy.example.com:3128"},
	}
	action, err := provider.Plan(cluster, provider.Secrets{Kubeconfig: made}, provider.Config{Now: time.Now()})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range action.Probe {
		fmt.Println("probe", c.Config.Clusters["prod"].ProxyURL)
	}
	fmt.Println("write", action.Update != nil)
	// Output:
	// probe http://proxy.example.com:3128
	// write false
}
