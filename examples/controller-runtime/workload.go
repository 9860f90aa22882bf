package main

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// workload returns a client of the kubeconfig Secret's cluster, by the Secret's
// route: a proxy, a tunnel's gateway, several endpoints.
func workload(secret *corev1.Secret, scheme *runtime.Scheme) (client.Client, io.Closer, error) {
	config, err := kubeconfig.FromSecret(secret)
	if err != nil {
		return nil, nil, err
	}
	way, err := connect.New(config, nil)
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(way.Config(), client.Options{Scheme: scheme})
	return c, way, err // Close ends the connections
}

// nodes counts a cluster's nodes.
func nodes(ctx context.Context, secret *corev1.Secret, scheme *runtime.Scheme) (int, error) {
	c, way, err := workload(secret, scheme)
	if err != nil {
		return 0, fmt.Errorf("kubeconfig of %s: %w", secret.Name, err)
	}
	defer way.Close()
	var list corev1.NodeList
	err = c.List(ctx, &list)
	return len(list.Items), err
}
