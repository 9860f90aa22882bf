package connect_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// One Client for a cluster, closed when the cluster is gone.
func ExampleNew() {
	caCert, caKey := exampleCA()
	config, err := kubeconfig.Spec{
		Name:        "prod",
		Endpoint:    kubeconfig.Endpoint{Host: "192.0.2.10", Port: 6443},
		CA:          caCert,
		Credentials: kubeconfig.Credentials{CAKey: caKey},
		Route:       kubeconfig.Route{ProxyURL: "socks5://proxy.example.com"},
	}.Build()
	if err != nil {
		log.Fatal(err)
	}
	client, err := connect.New(config, nil)
	if err != nil {
		log.Fatal(err)
	}
	clientset, err := kubernetes.NewForConfig(client.Config())
	if err != nil {
		log.Fatal(err)
	}
	client.Close()
	_, err = clientset.CoreV1().Namespaces().List(context.Background(), metav1.ListOptions{})
	fmt.Println(errors.Is(err, net.ErrClosed))
	// Output:
	// true
}

func exampleCA() (cert, key []byte) {
	ca := pki.NewCA("kubernetes")
	return ca.CertPEM(), ca.KeyPEM()
}
