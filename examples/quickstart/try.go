package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
)

const (
	attemptTimeout = 15 * time.Second
	directTimeout  = 2 * time.Second // what is not there may not answer
)

// try does what a controller does: it asks the API server with what the kubeconfig Secret
// holds.
func (d *demo) try(ctx context.Context, r route) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	client, err := d.newClient(r)
	if err != nil {
		return "", err
	}
	defer client.Close()
	clientset, err := kubernetes.NewForConfig(client.Config())
	if err != nil {
		return "", err
	}
	return ask(ctx, clientset)
}

// newClient builds the kubeconfig and its Secret, and returns a client of what the
// Secret holds.
func (d *demo) newClient(r route) (*connect.Client, error) {
	spec := d.spec
	spec.Route = r.route
	config, err := spec.Build()
	if err != nil {
		return nil, err
	}
	secret, err := kubeconfig.Secret(spec.Name, "default", config, nil)
	if err != nil {
		return nil, err
	}
	if config, err = kubeconfig.FromSecret(secret); err != nil {
		return nil, err
	}
	return connect.New(config, r.options)
}

// ask gets an answer from the API server that shows people that it was reached.
func ask(ctx context.Context, clientset kubernetes.Interface) (string, error) {
	rest := clientset.Discovery().RESTClient()
	ready, err := rest.Get().AbsPath("/readyz").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	version, err := clientset.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	list, err := clientset.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	watched, err := watchOne(ctx, clientset)
	if err != nil {
		return "", fmt.Errorf("watch: %w", err)
	}
	return fmt.Sprintf("%s, readyz %s, %d namespaces, watch saw %q", version.GitVersion, ready, len(list.Items), watched), nil
}

// watchOne returns the name of the first namespace that a watch tells of.
func watchOne(ctx context.Context, clientset kubernetes.Interface) (string, error) {
	w, err := clientset.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		ns, ok := e.Object.(*corev1.Namespace)
		if !ok {
			return "", fmt.Errorf("got an event %q that is no namespace", e.Type)
		}
		return ns.Name, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// shortError is the dialer's own error if there is one: client-go puts the
// request before it.
func shortError(err error) error {
	if e, ok := errors.AsType[*dialer.Error](err); ok {
		return e
	}
	return err
}
