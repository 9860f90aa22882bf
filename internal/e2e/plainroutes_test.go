package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"

	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/connect"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

// often makes a provider probe often enough for a test.
func often(defaults provider.Settings) provider.Config {
	return provider.Config{Interval: 6 * time.Second, Defaults: defaults}
}

// testPlainRoutes: RouteReady says what stock client-go makes of squid's https_port, whose
// CA and client certificate only our own clients know.
func (m *management) testPlainRoutes(t *testing.T) {
	t.Parallel()
	const namespace = "plain"
	annotations := m.routeBy(t, namespace, "route", m.squid.route)
	secure := m.bed.Squid.TLSURL()
	cert, key := pki.PEM(m.bed.Kube.CA.Client("proxy-client"))
	m.create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "secure", Labels: map[string]string{provider.LabelRoute: ""}},
		Data:       map[string][]byte{"proxy-url": []byte(secure.String()), "ca.crt": m.bed.Squid.CA.CertPEM(), "tls.crt": cert, "tls.key": key},
	})
	bySecure := map[string]string{provider.AnnotationProxyURL: "", provider.AnnotationRouteSecret: "secure"}
	c := m.bear(t, namespace, "prod", m.squid, birth{annotations: map[string]string{provider.AnnotationRouteSecret: "secure"}})
	if err := capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly); err != nil {
		t.Fatal(err)
	}
	m.startProvider(t, providerInput{Namespaces: []string{namespace}, Config: often(provider.Settings{})})
	is := func(scheme string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, proxy, _, err := m.entry(ctx, c)
			if err == nil && !strings.HasPrefix(proxy, scheme+"://") {
				err = fmt.Errorf("got the proxy %q, want one of %s", proxy, scheme)
			}
			return err
		}
	}
	// Nothing else works: our own clients have it, and the condition says whom it is for.
	eventually(t, "the https proxy in place of no way at all", is("https"))
	m.routeReady(t, c, metav1.ConditionFalse, provider.ReasonCausewayOnly)
	if err := m.reaches(t.Context(), c, m.squid); err == nil {
		t.Error("client-go reaches the cluster, and the condition is False")
	}
	if err := m.reachesByOwn(t, c, "secure"); err != nil {
		t.Error(err)
	}
	lines, err := m.bed.Squid.Log()
	if err != nil || !strings.Contains(strings.Join(lines, "\n"), "client-certificate=/CN=proxy-client") {
		t.Errorf("squid saw no client certificate of the Secret: %v", err)
	}
	m.annotate(t, c, annotations)
	m.routeReady(t, c, metav1.ConditionTrue, provider.ReasonReady)
	if err := m.reaches(t.Context(), c, m.squid); err != nil {
		t.Error(err)
	}
	m.checkDoctor(t, namespace+"/prod", "good ", "by an annotation of the Cluster.", "The condition RouteReady is True, Ready: ")
	m.checkDoctor(t, namespace+"/none", "FAIL ", `"none" not found`, "remedy   Correct --capi-cluster")
	// What works is not replaced by what client-go can't take.
	m.annotate(t, c, bySecure)
	m.routeReady(t, c, metav1.ConditionFalse, provider.ReasonCausewayOnly)
	if err := errors.Join(is("http")(t.Context()), m.reaches(t.Context(), c, m.squid)); err != nil {
		t.Error(err)
	}
}

// checkDoctor wants texts of what doctor says of a Cluster.
func (m *management) checkDoctor(t *testing.T, cluster string, wants ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "management")
	if err := os.WriteFile(file, m.config, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := m.bed.Network.Client.Run(t.Context(), bed.Command{
		Argv: []string{m.deployed.program, "doctor", "--kubeconfig", file, "--capi-cluster", cluster},
	})
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("got %v and\n%s\nwant %q in it", err, out, want)
		}
	}
}

// reachesByOwn is reaches for a Client of package connect, which reads the Secret for the proxy.
func (m *management) reachesByOwn(t *testing.T, c *clusterv1.Cluster, secret string) error {
	t.Helper()
	s, err := m.stored(t.Context(), c)
	if err != nil {
		return err
	}
	config, err := clientcmd.Load(s.Data[kubeconfig.SecretKey])
	if err != nil {
		return err
	}
	own, err := connect.New(config, &connect.Options{
		Forward: m.bed.Network.Client,
		ReadSecret: func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
			if name != secret {
				return nil, fmt.Errorf("the kubeconfig names the Secret %s, want %s", name, secret)
			}
			s, err := m.secret(ctx, namespace, name)
			return s.Data, err
		},
	})
	if err != nil {
		return err
	}
	defer own.Close()
	clients, err := kubernetes.NewForConfig(own.Config())
	if err != nil {
		return err
	}
	_, err = clients.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	return err
}

// testRouteKept: a route that no flag and no annotation of a Namespace names any more stays,
// as after a restart without the flag, and after clusterctl move.
func (m *management) testRouteKept(t *testing.T) {
	t.Parallel()
	route := func(namespace string) map[string]string { return m.routeBy(t, namespace, "route", m.squid.route) }
	kept := func(t *testing.T, c *clusterv1.Cluster) {
		t.Helper()
		m.routeReady(t, c, metav1.ConditionTrue, provider.ReasonKept)
		m.regenerate(t, c)
		eventually(t, "the route after a regeneration", func(ctx context.Context) error { return m.reaches(ctx, c, m.squid) })
		m.routeReady(t, c, metav1.ConditionTrue, provider.ReasonKept)
		m.annotate(t, c, map[string]string{provider.AnnotationMode: string(provider.Off)})
		eventually(t, "no route once the mode is off", func(ctx context.Context) error {
			_, proxy, _, err := m.entry(ctx, c)
			if err == nil && proxy != "" {
				err = errors.New("there is a proxy")
			}
			return err
		})
	}
	t.Run("flags", func(t *testing.T) {
		t.Parallel()
		const namespace = "kept-flags"
		annotations := route(namespace)
		c := m.bear(t, namespace, "prod", m.squid, birth{})
		if err := capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly); err != nil {
			t.Fatal(err)
		}
		first := m.startProvider(t, providerInput{Namespaces: []string{namespace}, Config: often(provider.Settings{
			ProxyURL: annotations[provider.AnnotationProxyURL], RouteSecret: namespace + "/route"})})
		m.routeReady(t, c, metav1.ConditionTrue, provider.ReasonReady)
		eventually(t, "the route", func(ctx context.Context) error { return m.reaches(ctx, c, m.squid) })
		first.Stop()
		m.startProvider(t, providerInput{Namespaces: []string{namespace}, Config: often(provider.Settings{})})
		kept(t, c)
	})
	t.Run("Namespace", func(t *testing.T) {
		t.Parallel()
		const namespace = "kept-namespace"
		annotations := route(namespace)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		m.change(t, ns, func() { ns.Annotations = annotations })
		c := m.bear(t, namespace, "prod", m.squid, birth{})
		if err := capikubeconfig.CreateSecret(t.Context(), m.admin, c, quickly); err != nil {
			t.Fatal(err)
		}
		m.startProvider(t, providerInput{Namespaces: []string{namespace}, Config: often(provider.Settings{})})
		m.routeReady(t, c, metav1.ConditionTrue, provider.ReasonReady)
		m.change(t, ns, func() { ns.Annotations = nil })
		kept(t, c)
	})
}
