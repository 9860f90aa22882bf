package providerauthor

import (
	"bytes"
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

const proxy = "http://proxy.example.com:3128"

var prod = client.ObjectKey{Namespace: "default", Name: "prod"}

// clusterWithCA returns the Cluster prod and the Secret of its CA.
func clusterWithCA(host string) []client.Object {
	ca := pki.NewCA("kubernetes")
	cluster := newCluster()
	cluster.SetNamespace(prod.Namespace)
	cluster.SetName(prod.Name)
	cluster.Object["spec"] = map[string]any{"controlPlaneEndpoint": map[string]any{"host": host, "port": int64(6443)}}
	return []client.Object{cluster, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: prod.Namespace, Name: "prod-ca"},
		Data:       map[string][]byte{"tls.crt": ca.CertPEM(), "tls.key": ca.KeyPEM()},
	}}
}

// readSecret reconciles once, and returns the kubeconfig Secret.
func readSecret(t *testing.T, r *Reconciler) *corev1.Secret {
	t.Helper()
	if _, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: prod}); err != nil {
		t.Fatal(err)
	}
	var secret corev1.Secret
	if err := r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "prod-kubeconfig"}, &secret); err != nil {
		t.Fatal(err)
	}
	return &secret
}

func TestRouteComesBack(t *testing.T) {
	r := &Reconciler{
		Client: fake.NewClientBuilder().WithObjects(clusterWithCA("192.0.2.10")...).Build(),
		Route:  kubeconfig.Route{ProxyURL: proxy},
	}
	made := readSecret(t, r)
	value := string(made.Data[kubeconfig.SecretKey])
	if !strings.Contains(value, "proxy-url: "+proxy) || made.OwnerReferences[0].Name != "prod" {
		t.Fatalf("got the owners %v and\n%s", made.OwnerReferences, value)
	}
	if again := readSecret(t, r); again.ResourceVersion != made.ResourceVersion {
		t.Error("a Secret that is as it should be was written")
	}
	made.Data[kubeconfig.SecretKey] = []byte(strings.Replace(value, "proxy-url: "+proxy, "tls-server-name: kept", 1))
	if err := r.Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	back := readSecret(t, r).Data[kubeconfig.SecretKey]
	if !bytes.Contains(back, []byte("proxy-url: "+proxy)) || !bytes.Contains(back, []byte("tls-server-name: kept")) {
		t.Errorf("want the route back, and what was added; got\n%s", back)
	}
}

func TestNothingToWriteYet(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"no Cluster":  nil,
		"no CA":       clusterWithCA("192.0.2.10")[:1],
		"no endpoint": clusterWithCA(""),
	} {
		r := &Reconciler{Client: fake.NewClientBuilder().WithObjects(objects...).Build()}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: prod}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var secrets corev1.SecretList
		if err := r.List(t.Context(), &secrets); err != nil || len(secrets.Items) > len(objects)-1 && len(objects) > 0 {
			t.Errorf("%s: got %d Secrets, %v", name, len(secrets.Items), err)
		}
	}
}

// A kubeconfig that can't be read is an error, and stays.
func TestBrokenKubeconfig(t *testing.T) {
	broken := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: prod.Namespace, Name: "prod-kubeconfig"},
		Data:       map[string][]byte{kubeconfig.SecretKey: []byte("{")},
	}
	r := &Reconciler{Client: fake.NewClientBuilder().WithObjects(append(clusterWithCA("192.0.2.10"), broken)...).Build()}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: prod}); err == nil {
		t.Error("got no error")
	}
	var after corev1.Secret
	if err := r.Get(t.Context(), client.ObjectKeyFromObject(broken), &after); err != nil || string(after.Data[kubeconfig.SecretKey]) != "{" {
		t.Errorf("got %q, %v; want it unchanged", after.Data, err)
	}
}
