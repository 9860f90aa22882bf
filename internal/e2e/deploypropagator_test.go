package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/proxyconfig"
)

// propagatorBase is the namespace of the program's base.
const propagatorBase = "proxy-propagator"

// testPropagator: a Cluster gets its objects, these follow the installation's
// Secret, and what others made stays and is told of.
func (d *deploying) testPropagator(t *testing.T) {
	const namespace = "propagated"
	installation := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: propagatorBase, Name: "installation-proxy"},
		Data:       map[string][]byte{"HTTPS_PROXY": []byte("http://user:" + injectPassword + "@proxy.example.com:3128"), "NO_PROXY": []byte("first.example.com")},
	}
	d.create(t, installation)
	m := &management{admin: d.admin, bed: d.bed}
	m.namespace(t, namespace)
	d.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foreign-systemd-proxy"}})
	d.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foreign-cluster-values"}})
	p := d.start(t, propagatorBase)
	for _, name := range []string{"ours", "foreign"} {
		m.bear(t, namespace, name, workload{name: "deploy", kube: d.Kube}, birth{})
	}
	holds := func(list string) {
		t.Helper()
		eventually(t, "the objects with "+list, func(ctx context.Context) error {
			dropIn, err := d.secret(ctx, namespace, "ours-systemd-proxy")
			if err != nil {
				return err
			}
			values := new(corev1.ConfigMap)
			if err := d.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "ours-cluster-values"}, values); err != nil {
				return err
			}
			if !strings.Contains(string(dropIn.Data[proxyconfig.ContainerdKey]), list) || !strings.Contains(values.Data[proxyconfig.ValuesKey], list) {
				return fmt.Errorf("got the list %s", values.Data[proxyconfig.ValuesKey])
			}
			return nil
		})
	}
	holds("first.example.com")
	p.ready(t)
	installation.Data["NO_PROXY"] = []byte("second.example.com")
	if err := d.admin.Update(t.Context(), installation); err != nil {
		t.Fatal(err)
	}
	holds("second.example.com")
	for _, kind := range []string{"Secret " + namespace + "/foreign-systemd-proxy", "ConfigMap " + namespace + "/foreign-cluster-values"} {
		eventually(t, "an Event about the "+kind, func(context.Context) error {
			if got := d.kubectl(t, "", "get", "events.events.k8s.io", "-n", namespace, "-o", "jsonpath={.items[*].note}"); !strings.Contains(got, kind) {
				return fmt.Errorf("got %q", got)
			}
			return nil
		})
	}
	p.end(t)
}
