package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// quickly makes the keys that Cluster API makes, in a thousandth of the time.
var quickly = capikubeconfig.KeyEncryptionAlgorithm(bootstrapv1.EncryptionAlgorithmECDSAP256)

// routeBy stores the credentials of a route in a Secret, and returns the
// annotations that lead a Cluster of the namespace by it.
func (m *management) routeBy(t *testing.T, namespace, name string, r kubeconfig.Route) map[string]string {
	t.Helper()
	annotations := map[string]string{provider.AnnotationRouteSecret: name}
	var user *url.Userinfo
	key, proxy := provider.KeyGateway, ""
	if r.Tunnel != nil {
		proxy = r.Tunnel.Gateway
		annotations[provider.AnnotationGateway] = r.Tunnel.Gateway
		annotations[provider.AnnotationTunnelCluster] = r.Tunnel.Cluster
		user = url.UserPassword(r.Tunnel.Cluster, r.Tunnel.Password)
	} else {
		u, err := url.Parse(r.ProxyURL)
		if err != nil {
			t.Fatal(err)
		}
		user, u.User = u.User, nil
		key, proxy = provider.KeyProxyURL, u.String()
		annotations[provider.AnnotationProxyURL] = proxy
	}
	data := credentialsOf(user)
	data[key] = []byte(proxy)
	m.namespace(t, namespace)
	m.create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{provider.LabelRoute: ""}},
		Data:       data,
	})
	return annotations
}

func credentialsOf(user *url.Userinfo) map[string][]byte {
	password, _ := user.Password()
	return map[string][]byte{provider.KeyUsername: []byte(user.Username()), provider.KeyPassword: []byte(password)}
}

// annotate changes annotations of a Cluster; an empty value removes one.
func (m *management) annotate(t *testing.T, c *clusterv1.Cluster, annotations map[string]string) {
	t.Helper()
	m.change(t, c, func() {
		c.Annotations = maps.Clone(c.Annotations)
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		for name, value := range annotations {
			if delete(c.Annotations, name); value != "" {
				c.Annotations[name] = value
			}
		}
	})
}

// change reads an object, changes it and writes it, until nobody came between.
func (m *management) change(t *testing.T, object client.Object, change func()) {
	t.Helper()
	err := bed.Poll(t.Context(), "a change", func(ctx context.Context) error {
		if err := m.admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return bed.Stop(err)
		}
		change()
		return m.admin.Update(ctx, object)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// regenerate is what Cluster API does when a certificate is old.
func (m *management) regenerate(t *testing.T, c *clusterv1.Cluster) {
	t.Helper()
	err := bed.Poll(t.Context(), "Cluster API to regenerate", func(ctx context.Context) error {
		s, err := m.stored(ctx, c)
		if err != nil {
			return bed.Stop(err)
		}
		return capikubeconfig.RegenerateSecret(ctx, m.admin, s, quickly)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// reach asks the cluster that a kubeconfig leads to who it is, by stock
// client-go from the management cluster's network.
func (m *management) reach(ctx context.Context, value []byte) (system string, err error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(value)
	if err != nil {
		return "", err
	}
	config.Dial = m.bed.Network.Client.DialContext
	config.Timeout = 10 * time.Second
	config.QPS = -1
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	defer utilnet.CloseIdleConnectionsFor(httpClient.Transport)
	clients, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return "", err
	}
	ns, err := clients.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(ns.UID), nil
}

// reaches says whether the Secret of a Cluster leads to the workload cluster,
// now.
func (m *management) reaches(ctx context.Context, c *clusterv1.Cluster, w workload) error {
	s, err := m.stored(ctx, c)
	if err != nil {
		return err
	}
	system, err := m.reach(ctx, s.Data[kubeconfig.SecretKey])
	if err == nil && system != w.system {
		err = fmt.Errorf("it leads to the cluster %s, want %s", system, w.system)
	}
	return err
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := bed.Poll(ctx, what, holds); err != nil {
		t.Fatal(err)
	}
}

// routeReady waits until the Cluster's condition says so.
func (m *management) routeReady(t *testing.T, c *clusterv1.Cluster, status metav1.ConditionStatus, reasons ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the condition of %s to be %s %s", c.Name, status, reasons), func(ctx context.Context) error {
		got := &clusterv1.Cluster{}
		if err := m.admin.Get(ctx, client.ObjectKeyFromObject(c), got); err != nil {
			return bed.Stop(err)
		}
		for _, condition := range got.Status.Conditions {
			if condition.Type == provider.ConditionRoute && condition.Status == status &&
				(len(reasons) == 0 || slices.Contains(reasons, condition.Reason)) {
				return nil
			}
		}
		return fmt.Errorf("got %+v", got.Status.Conditions)
	})
}

// entry is what the stored kubeconfig of a Cluster says of the way there.
func (m *management) entry(ctx context.Context, c *clusterv1.Cluster) (server, proxy, serverName string, err error) {
	s, err := m.stored(ctx, c)
	if err != nil {
		return "", "", "", err
	}
	config, err := clientcmd.Load(s.Data[kubeconfig.SecretKey])
	if err != nil {
		return "", "", "", err
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return "", "", "", errors.New("it has no current context")
	}
	entry := config.Clusters[current.Cluster]
	return entry.Server, entry.ProxyURL, entry.TLSServerName, nil
}
