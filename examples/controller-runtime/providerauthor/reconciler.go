// Package providerauthor is a provider's reconciler that writes the kubeconfig Secret of
// its Clusters, with a route in it, and keeps the route there.
package providerauthor

import (
	"bytes"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/causewayproject/causeway/kubeconfig"
)

// clusterKind is the Cluster of Cluster API; v1beta1 has the same endpoint.
var clusterKind = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"}

// Reconciler makes and renews the Secret <cluster>-kubeconfig of each Cluster that has an
// endpoint and a CA.
type Reconciler struct {
	client.Client
	Route kubeconfig.Route // how the API servers are reached
}

// SetupWithManager reconciles a Cluster when it or one of its Secrets changes, so that a
// route that another program removed comes back.
func (r *Reconciler) SetupWithManager(m ctrl.Manager) error {
	ofCluster := func(_ context.Context, secret client.Object) []reconcile.Request {
		name := secret.GetLabels()[kubeconfig.ClusterNameLabel]
		if name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: secret.GetNamespace(), Name: name}}}
	}
	return ctrl.NewControllerManagedBy(m).Named("kubeconfig").For(newCluster()).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(ofCluster)).Complete(r)
}

func newCluster() *unstructured.Unstructured {
	cluster := &unstructured.Unstructured{}
	cluster.SetGroupVersionKind(clusterKind)
	return cluster
}

// Reconcile writes the Secret if it is not there, or not as it should be.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster, ca := newCluster(), &corev1.Secret{}
	if err := r.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: req.Name + "-ca"}, ca); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // its creation is an event
	}
	host, _, _ := unstructured.NestedString(cluster.Object, "spec", "controlPlaneEndpoint", "host")
	port, _, _ := unstructured.NestedInt64(cluster.Object, "spec", "controlPlaneEndpoint", "port")
	if host == "" || port == 0 {
		return ctrl.Result{}, nil // the infrastructure has no endpoint yet
	}
	err := r.writeSecret(ctx, cluster, kubeconfig.Spec{
		Name:        req.Name,
		Endpoint:    kubeconfig.Endpoint{Host: host, Port: int32(port)},
		CA:          ca.Data["tls.crt"],
		Credentials: kubeconfig.Credentials{CAKey: ca.Data["tls.key"]},
		Route:       r.Route,
	})
	// The client certificate is renewed at half of its life.
	return ctrl.Result{RequeueAfter: time.Hour}, err
}

func (r *Reconciler) writeSecret(ctx context.Context, cluster *unstructured.Unstructured, spec kubeconfig.Spec) error {
	var secret corev1.Secret
	err := r.Get(ctx, client.ObjectKey{Namespace: cluster.GetNamespace(), Name: cluster.GetName() + "-kubeconfig"}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		config, err := spec.Build()
		if err != nil {
			return err
		}
		made, err := kubeconfig.Secret(cluster.GetName(), cluster.GetNamespace(), config, metav1.NewControllerRef(cluster, clusterKind))
		if err != nil {
			return err
		}
		return r.Create(ctx, made)
	case err != nil:
		return err
	}
	// Merge renews the certificate if it has to. All else in the Secret stays. For a Secret
	// that a control plane makes and renews, take a Spec of which only Route is set.
	existing := secret.Data[kubeconfig.SecretKey]
	value, err := kubeconfig.Merge(existing, spec)
	if err != nil || bytes.Equal(existing, value) {
		return err
	}
	secret.Data[kubeconfig.SecretKey] = value
	return r.Update(ctx, &secret) // a conflict is an error: the next try reads again
}
