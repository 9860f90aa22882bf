package connect_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
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
	core, err := coreclient.NewForConfig(client.Config())
	if err != nil {
		log.Fatal(err)
	}
	client.Close()
	_, err = core.Namespaces().List(context.Background(), metav1.ListOptions{})
	fmt.Println(errors.Is(err, net.ErrClosed))
	// Output:
	// true
}

func exampleCA() (cert, key []byte) {
	ca := pki.NewCA("kubernetes")
	return ca.CertPEM(), ca.KeyPEM()
}

// A controller's reconciliations of many clusters. The Secret comes from an
// informer.
func ExampleCache() {
	cache := &connect.Cache{Size: 500}
	defer cache.Close()

	reconcile := func(ctx context.Context, secret *corev1.Secret) error {
		client, release, err := cache.Get(secret)
		if err != nil {
			return err
		}
		defer release()
		core, err := coreclient.NewForConfig(client.Config())
		if err != nil {
			return err
		}
		_, err = core.Nodes().List(ctx, metav1.ListOptions{})
		return err
	}
	deleted := func(secret *corev1.Secret) { cache.Forget(secret.Namespace, secret.Name) }

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "prod-kubeconfig"}}
	fmt.Println(reconcile(context.Background(), secret))
	deleted(secret)
	// Output:
	// kubeconfig: Secret clusters/prod-kubeconfig: has no key "value"
}
