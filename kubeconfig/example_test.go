package kubeconfig_test

import (
	"bytes"
	"fmt"
	"log"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

// The Secret that Cluster API expects, for a cluster behind a proxy, made of
// the cluster's CA (the Secret <name>-ca).
func Example() {
	caCert, caKey := exampleCA()
	spec := kubeconfig.Spec{
		Name:          "prod",
		Endpoint:      kubeconfig.Endpoint{Host: "192.0.2.10", Port: 6443},
		CA:            caCert,
		TLSServerName: "kubernetes.default.svc",
		Credentials:   kubeconfig.Credentials{CAKey: caKey},
		Route:         kubeconfig.Route{ProxyURL: "http://user:password@proxy.example.com:3128"},
	}
	config, err := spec.Build()
	if err != nil {
		log.Fatal(err)
	}
	secret, err := kubeconfig.Secret("prod", "clusters", config, &metav1.OwnerReference{
		APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "prod", UID: "1b4e28ba",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(secret.Namespace, secret.Name, secret.Type)
	fmt.Println(config.CurrentContext, config.Clusters["prod"].Server)
	fmt.Println(spec.Route)
	// Output:
	// clusters prod-kubeconfig cluster.x-k8s.io/secret
	// prod-admin@prod https://192.0.2.10:6443
	// http://proxy.example.com:3128
}

// A route goes into a kubeconfig of Cluster API; the credentials, and what
// somebody added, stay. To say it again changes nothing.
func ExampleMerge() {
	existing := []byte(`apiVersion: v1
clusters:
- cluster:
    server: https://192.0.2.10:6443
    added-by: somebody
  name: prod
contexts:
- context:
    cluster: prod
    user: prod-admin
  name: prod-admin@prod
current-context: prod-admin@prod
kind: Config
users:
- name: prod-admin
  user:
    tokenFile: /run/token
`)
	spec := kubeconfig.Spec{Route: kubeconfig.Route{ProxyURL: "http://proxy.example.com:3128", NoProxy: ".internal"}}
	merged, err := kubeconfig.Merge(existing, spec)
	if err != nil {
		log.Fatal(err)
	}
	again, err := kubeconfig.Merge(merged, spec)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bytes.Equal(merged, again))
	cluster, _, _ := strings.Cut(string(merged), "contexts:")
	fmt.Print(cluster)
	// Output:
	// true
	// apiVersion: v1
	// clusters:
	// - cluster:
	//     extensions:
	//     - extension:
	//         apiVersion: kubeconfig.causewayproject.github.io/v1
	//         kind: Route
	//         noProxy: .internal
	//       name: causewayproject.github.io/route
	//     proxy-url: http://proxy.example.com:3128
	//     server: https://192.0.2.10:6443
	//     added-by: somebody
	//   name: prod
}

// A Spec that can't be used says why, one line a field.
func ExampleSpec_Build_invalid() {
	_, err := kubeconfig.Spec{
		Name:        "prod",
		Endpoint:    kubeconfig.Endpoint{Host: "https://192.0.2.10:6443"},
		CA:          []byte("-"),
		Credentials: kubeconfig.Credentials{Token: "secret"},
		Route:       kubeconfig.Route{ProxyURL: "ftp://user:secret@proxy"},
	}.Build()
	fmt.Println(err)
	// Output:
	// kubeconfig: Endpoint.Host: holds a scheme: want a DNS name or an IP address alone
	// kubeconfig: Endpoint.Port: required, from 1 to 65535; got 0
	// kubeconfig: CA: holds no PEM block: want PEM certificates
	// kubeconfig: Route.ProxyURL: the scheme "ftp" is not http, https, socks5 or socks5h
}

func exampleCA() (cert, key []byte) {
	ca := pki.NewCA("kubernetes")
	return ca.CertPEM(), ca.KeyPEM()
}
