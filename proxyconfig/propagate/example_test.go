package propagate_test

import (
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// What is to be written for a new Cluster: what a machine reads comes first.
func ExamplePlan() {
	cluster := propagate.Cluster{
		Namespace: "default", Name: "prod", UID: "1b4e28ba", APIVersion: "cluster.x-k8s.io/v1beta2",
		Facts: noproxy.Cluster{
			PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/12"}, ControlPlaneHosts: []string{"192.0.2.10"},
		},
	}
	installation := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "proxy"},
		Data:       map[string][]byte{"HTTPS_PROXY": []byte("http://user:p%40ss@proxy.example.com:3128")},
	}
	action, err := propagate.Plan(cluster, propagate.Held{Installation: installation}, propagate.Config{Installation: "system/proxy"})
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range action.Writes {
		fmt.Println(w)
	}
	// Output:
	// Secret default/prod-systemd-proxy
	// Secret default/prod-cluster-values
	// ConfigMap default/prod-cluster-values
}
