package provider_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

func TestModes(t *testing.T) {
	inBubble(t, "own", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		w.secrets.CA = nil
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonNoCA)
		w.secrets.CA = w.ca.secret()
		w.settle()
		s := w.secrets.Kubeconfig
		owner := s.OwnerReferences[0]
		if s.Type != corev1.SecretTypeOpaque || s.Labels[kubeconfig.ClusterNameLabel] != name || owner.Kind != "Cluster" || owner.UID != "uid-1" || owner.Controller != nil {
			t.Errorf("got %s", toJSON(s.ObjectMeta))
		}
		w.server(endpointA)
		w.cluster.Endpoint.Host = "192.0.2.20"
		w.settle()
		w.server(endpointB)
	})
	inBubble(t, "own, and the route taken away", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		w.annotate("proxy-url", proxyA)
		w.settle()
		delete(w.cluster.Annotations, provider.AnnotationProxyURL)
		w.settle()
		w.proxy(proxyA)
		w.annotate("proxy-url", "direct")
		w.settle()
		w.proxy("")
	})
	inBubble(t, "own, and credentials of another CA", func(t *testing.T, w *world) {
		ours := w.ca
		w.ca = newAuthority(t)
		w.controlPlane()
		in := func(a authority) []byte { return []byte(base64.StdEncoding.EncodeToString(a.cert)) }
		w.secrets.Kubeconfig.Data["value"] = bytes.Replace(w.secrets.Kubeconfig.Data["value"], in(w.ca), in(ours), 1)
		w.cluster.HasControlPlane = false
		w.settle()
		if _, err := clientCertificate(t, w.secrets.Kubeconfig).Verify(newPool(ours.cert)); err != nil {
			t.Error(err)
		}
	})
	inBubble(t, "own without an endpoint", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		w.cluster.Endpoint = kubeconfig.Endpoint{}
		w.settle()
		if w.condition(metav1.ConditionFalse, provider.ReasonNoEndpoint); w.writes != 0 {
			t.Error("written")
		}
	})
	inBubble(t, "own, and the CA's end", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		time.Sleep(9*365*24*time.Hour + 200*24*time.Hour) // 165 days are left, for the certificate too
		w.settle()
		first := clientCertificate(t, w.secrets.Kubeconfig)
		time.Sleep(24 * time.Hour)
		w.settle()
		if !clientCertificate(t, w.secrets.Kubeconfig).Equal(first) {
			t.Error("rotated, and no certificate outlives the CA")
		}
	})
	inBubble(t, "own without a key", func(t *testing.T, w *world) {
		w.cluster.HasControlPlane = false
		w.settle()
		delete(w.secrets.CA.Data, "tls.key")
		time.Sleep(200 * 24 * time.Hour)
		w.settle()
		w.condition(metav1.ConditionTrue, provider.ReasonNoCA)
	})
	inBubble(t, "a large CA", func(t *testing.T, w *world) {
		w.controlPlane()
		w.mark()
		w.settle()
		w.secrets.CA.Data["tls.crt"], w.secrets.CA.Data["tls.key"] = pki.NewCA("large").LargeRSA()
		w.settle()
		w.kept()
		w.secrets.Kubeconfig, w.cluster.HasControlPlane = nil, false
		w.settle()
		if got := w.cluster.Condition.Message; !strings.Contains(got, "the RSA key has 32768 bits") {
			t.Errorf("got %q, want what is wrong with the CA", got)
		}
	})
	inBubble(t, "own adopts", func(t *testing.T, w *world) {
		w.controlPlane()
		w.cluster.HasControlPlane = false
		w.mark()
		w.settle()
		w.happened(provider.ReasonAdopted)
		w.kept()
		if s := w.secrets.Kubeconfig; s.Type != kubeconfig.SecretType || s.OwnerReferences[0].Kind != "KubeadmControlPlane" {
			t.Error("type or owner changed")
		}
		first := clientCertificate(t, w.secrets.Kubeconfig)
		time.Sleep(190 * 24 * time.Hour)
		w.settle()
		if clientCertificate(t, w.secrets.Kubeconfig).Equal(first) {
			t.Error("not rotated")
		}
		w.kept()
	})
	inBubble(t, "own and a user's", func(t *testing.T, w *world) {
		w.controlPlane()
		w.cluster.HasControlPlane = false
		w.secrets.Kubeconfig.Type = corev1.SecretTypeOpaque
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonNotOurs)
		if w.writes != 0 {
			t.Fatal("written")
		}
		w.annotate("mode", "own")
		w.settle()
		w.happened(provider.ReasonAdopted)
	})
	inBubble(t, "decorate does not rotate", func(t *testing.T, w *world) {
		marked(w)
		first := clientCertificate(t, w.secrets.Kubeconfig)
		time.Sleep(300 * 24 * time.Hour)
		w.settle()
		if !clientCertificate(t, w.secrets.Kubeconfig).Equal(first) {
			t.Error("rotated")
		}
	})
	inBubble(t, "rewrite", func(t *testing.T, w *world) {
		marked(w)
		w.annotate("mode", "rewrite")
		w.annotate("proxy-url", "direct")
		w.annotate("server", "gateway.tunnel.svc:6443")
		w.settle()
		w.server("https://gateway.tunnel.svc:6443")
		w.proxy("")
		if got := w.kubeconfig().TLSServerName; got != "kubernetes.default.svc" {
			t.Errorf("got tls-server-name %q", got)
		}
		w.controlPlane() // keeps the server
		w.settle()
		w.cluster.Endpoint.Host = "192.0.2.20"
		w.settle()
		w.annotate("mode", "decorate")
		w.settle()
		w.server(endpointB)
		if got := w.kubeconfig().TLSServerName; got != "" {
			t.Errorf("got tls-server-name %q", got)
		}
	})
	inBubble(t, "a server with a path", func(t *testing.T, w *world) {
		w.controlPlane()
		w.edit(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server += "/k8s/clusters/c-1" })
		w.route("route", map[string]string{"username": "u", "password": "p", "gateway": "http://gw.test:3128"})
		w.annotate("route-secret", "route")
		w.annotate("server", "gateway.tunnel.test:6443")
		w.annotate("mode", "rewrite")
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonInvalidSettings)
		w.message("server")
		w.message("a path that would be lost")
		w.server(endpointA + "/k8s/clusters/c-1")
	})
	inBubble(t, "tunnel", func(t *testing.T, w *world) {
		w.controlPlane()
		w.annotate("gateway", "http://gw.test:3128")
		w.annotate("route-secret", "route")
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonInvalidSettings)
		w.route("route", map[string]string{"username": "u", "password": canary + "\n", "gateway": "http://GW.test.:3128\n"})
		w.settle()
		w.server(endpointA)
		w.proxy("http://u:" + canary + "@gw.test:3128")
		w.annotate("proxy-url", "direct")
		delete(w.cluster.Annotations, provider.AnnotationGateway)
		w.settle()
		w.server(endpointA)
	})
	inBubble(t, "https proxy", func(t *testing.T, w *world) {
		w.controlPlane()
		w.annotate("proxy-url", "https://p.test:3129")
		w.annotate("route-secret", "route")
		w.route("route", map[string]string{"ca.crt": string(w.ca.cert), "tls.crt": "x", "tls.key": canary, "proxy-url": "https://p.test:3129"})
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonInvalidSettings)
		large, largeKey := pki.NewCA("large").LargeRSA()
		w.route("route", map[string]string{"ca.crt": string(w.ca.cert), "tls.crt": string(large), "tls.key": string(largeKey), "proxy-url": "https://p.test:3129"})
		w.settle()
		if got := w.cluster.Condition.Message; !strings.Contains(got, "tls.crt and tls.key, for the proxy: the private key is too large: want RSA with at most 8192 bits") {
			t.Errorf("got %q of a large key for the proxy", got)
		}
		w.route("route", map[string]string{"ca.crt": string(w.ca.cert), "tls.crt": string(w.ca.cert), "tls.key": string(w.ca.key), "proxy-url": "https://p.test:3129/"})
		w.settle()
		if value := string(w.secrets.Kubeconfig.Data["value"]); !strings.Contains(value, kubeconfig.ExtensionName) || strings.Contains(value, base64.StdEncoding.EncodeToString(w.ca.key)) {
			t.Error("the proxy's TLS is not in the extension, or the key is")
		}
	})
	inBubble(t, "off", func(t *testing.T, w *world) {
		marked(w)
		w.annotate("mode", "off")
		w.settle()
		w.proxy("")
		for key := range w.secrets.Kubeconfig.Data {
			if strings.HasPrefix(key, "causeway") {
				t.Errorf("the key %s is left", key)
			}
		}
		for key := range w.secrets.Kubeconfig.Annotations {
			if strings.HasPrefix(key, provider.Prefix) {
				t.Errorf("the annotation %s is left", key)
			}
		}
		w.kept()
	})
}

func TestSecondary(t *testing.T) {
	inBubble(t, "follows", func(t *testing.T, w *world) {
		w.controlPlane()
		w.mark()
		w.annotate("mode", "secondary")
		w.annotate("proxy-url", proxyA)
		before := w.secrets.Kubeconfig.ResourceVersion
		w.settle()
		s := w.secrets.Secondary
		if s.Name != "c1-proxied" || w.entry(s).ProxyURL != proxyA || s.OwnerReferences[0].Kind != "Cluster" {
			t.Fatalf("got %s", toJSON(s.ObjectMeta))
		}
		if w.secrets.Kubeconfig.ResourceVersion != before {
			t.Fatal("the first Secret was written")
		}
		w.controlPlane()
		probes := w.probes
		w.do(w.plan())
		if !clientCertificate(t, w.secrets.Secondary).Equal(clientCertificate(t, w.secrets.Kubeconfig)) || w.probes != probes {
			t.Error("the credentials did not follow")
		}
		w.annotate("mode", "off")
		w.settle()
		if w.secrets.Secondary != nil {
			t.Error("not deleted")
		}
	})
	inBubble(t, "alone", func(t *testing.T, w *world) {
		w.annotate("mode", "secondary")
		w.settle()
		if w.entry(w.secrets.Secondary).Server != endpointA {
			t.Error("not made of the CA")
		}
	})
	inBubble(t, "a name that is taken", func(t *testing.T, w *world) {
		w.annotate("mode", "secondary")
		w.settle()
		made := w.secrets.Secondary.DeepCopy()
		w.secrets.Secondary = nil
		for _, name := range []string{"c1-ca", "other-etcd", "c1-proxy", "c1-tunnel-route", "bootstrap-token-abcdef"} {
			w.annotate("secondary-name", name)
			w.settle()
			w.condition(metav1.ConditionFalse, provider.ReasonInvalidSettings)
			if text := w.cluster.Condition.Message; w.secrets.Secondary != nil || !strings.Contains(text, "secondary-name") {
				t.Errorf("got %q of %s, want it refused", text, name)
			}
		}
		made.Name = "c1-proxy" // from before
		w.secrets.Secondary = made
		w.annotate("secondary-name", "c1-proxy")
		w.annotate("proxy-url", proxyA)
		w.settle()
		if got := w.entry(w.secrets.Secondary).ProxyURL; got != proxyA {
			t.Errorf("got %q, want one that exists kept current", got)
		}
	})
	inBubble(t, "another's", func(t *testing.T, w *world) {
		w.controlPlane()
		w.secrets.Secondary = w.secrets.Kubeconfig.DeepCopy()
		w.secrets.Secondary.Name = "c1-proxied"
		w.annotate("mode", "secondary")
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonNotOurs)
		w.annotate("mode", "off")
		w.settle()
		if w.secrets.Secondary == nil || w.writes > 0 {
			t.Error("deleted or written")
		}
	})
	inBubble(t, "before decorate", func(t *testing.T, w *world) {
		besideFirst(w)
		w.annotate("mode", "decorate")
		w.settle()
		w.happened(provider.ReasonDeleted)
		if w.proxy(proxyA); w.secrets.Secondary != nil {
			t.Error("the second Secret is left behind")
		}
	})
	for _, mode := range []string{"decorate", "own"} {
		inBubble(t, "before "+mode+", by a proxy that is down", func(t *testing.T, w *world) {
			besideFirst(w)
			w.annotate("mode", mode)
			w.annotate("proxy-url", proxyB)
			w.probe = down(proxyB)
			w.wait(10 * time.Minute)
			w.proxy("")
			if s := w.secrets.Secondary; s == nil || w.entry(s).ProxyURL != proxyA {
				t.Fatal("the second Secret, the only one with a route that works, is gone")
			}
			w.probe = down()
			w.wait(10 * time.Minute)
			if w.proxy(proxyB); w.secrets.Secondary != nil {
				t.Error("the second Secret is left behind")
			}
		})
	}
	inBubble(t, "a taken name after decorate", func(t *testing.T, w *world) {
		decorated(w)
		w.secrets.Secondary = w.secrets.Kubeconfig.DeepCopy()
		w.secrets.Secondary.Name = "c1-proxied"
		w.secrets.Secondary.Annotations = nil
		w.annotate("mode", "secondary")
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonNotOurs)
		w.proxy(proxyA) // in the first, or the Cluster would have no route at all
	})
	inBubble(t, "after rewrite", func(t *testing.T, w *world) {
		rewritten(w)
		w.annotate("mode", "secondary")
		w.settle()
		if c := w.entry(w.secrets.Secondary); c.ProxyURL != proxyA || c.Server != endpointA {
			t.Errorf("got %s by %q", c.Server, c.ProxyURL)
		}
		w.proxy("")
	})
	inBubble(t, "after decorate", func(t *testing.T, w *world) {
		marked(w)
		w.annotate("mode", "secondary")
		for w.secrets.Secondary == nil { // until then the first has the route
			w.proxy(proxyA)
			w.do(w.plan())
		}
		w.settle()
		w.happened(provider.ReasonHandedBack)
		w.proxy("")
		if w.entry(w.secrets.Secondary).ProxyURL != proxyA {
			t.Error("the second Secret has no route")
		}
	})
}

// TestSecondaryOwner: the second Secret is the Cluster's if the Cluster owns it. Who may edit
// a Cluster can name the second Secret of another one, with all marks of the provider.
func TestSecondaryOwner(t *testing.T) {
	owners := func(s *corev1.Secret) *metav1.OwnerReference { return &s.OwnerReferences[0] }
	for _, tt := range []struct {
		name   string
		change func(*corev1.Secret)
		taken  bool
	}{
		{"another Cluster's", func(s *corev1.Secret) {
			s.Labels[kubeconfig.ClusterNameLabel], owners(s).Name, owners(s).UID = "c2", "c2", "uid-2"
		}, false},
		{"another Cluster's, by its owner", func(s *corev1.Secret) { owners(s).Name, owners(s).UID = "c2", "uid-2" }, false},
		{"another Cluster's, by its label", func(s *corev1.Secret) { s.Labels[kubeconfig.ClusterNameLabel] = "c2" }, false},
		{"another Cluster's, whose owner was dropped", func(s *corev1.Secret) { s.Labels[kubeconfig.ClusterNameLabel], s.OwnerReferences = "c2", nil }, false},
		{"the UID with another name", func(s *corev1.Secret) { owners(s).Name = "c2" }, false},
		{"the UID with another kind", func(s *corev1.Secret) { owners(s).Kind = "Machine" }, false},
		{"another type", func(s *corev1.Secret) { s.Type = corev1.SecretTypeServiceAccountToken }, false},
		{"restored with the former owner", func(s *corev1.Secret) { owners(s).UID = "gone" }, true},
		{"restored without its owner", func(s *corev1.Secret) { s.OwnerReferences = nil }, true},
	} {
		inBubble(t, tt.name, func(t *testing.T, w *world) {
			w.controlPlane()
			w.annotate("mode", "secondary")
			w.annotate("proxy-url", proxyA)
			w.settle()
			left := w.secrets.Secondary.DeepCopy()
			tt.change(left)
			w.secrets.Secondary, w.writes = left.DeepCopy(), 0
			w.annotate("mode", "off") // it may be deleted only by the UID of its owner
			if w.settle(); (w.secrets.Secondary == nil) != tt.taken || w.writes > 0 && !tt.taken {
				t.Fatal("deleted or written, or left behind")
			}
			if tt.taken {
				w.happened(provider.ReasonAdopted)
				w.happened(provider.ReasonDeleted)
			}
			w.secrets.Secondary = w.stored(left)
			w.annotate("mode", "secondary")
			w.annotate("proxy-url", proxyB)
			w.settle()
			if !tt.taken {
				if w.condition(metav1.ConditionFalse, provider.ReasonNotOurs); w.writes > 0 {
					t.Error("written")
				}
				return
			}
			if s := w.secrets.Secondary; w.entry(s).ProxyURL != proxyB || len(s.OwnerReferences) != 1 || owners(s).UID != "uid-1" {
				t.Errorf("got %s", toJSON(s.ObjectMeta))
			}
		})
	}
}

// TestCreatedOwner: a kubeconfig that the provider made, and that a restore has left without
// its owner, is taken over, and an Event says so.
func TestCreatedOwner(t *testing.T) {
	for name, change := range map[string]func(*corev1.Secret){
		"none":       func(s *corev1.Secret) { s.OwnerReferences = nil },
		"the former": func(s *corev1.Secret) { s.OwnerReferences[0].UID = "gone" },
	} {
		inBubble(t, name, func(t *testing.T, w *world) {
			w.annotate("mode", "own")
			w.settle()
			left := w.secrets.Kubeconfig.DeepCopy()
			change(left)
			w.secrets.Kubeconfig = left
			w.settle()
			w.happened(provider.ReasonAdopted)
			if s := w.secrets.Kubeconfig; len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != "uid-1" {
				t.Errorf("got %s", toJSON(s.ObjectMeta))
			}
		})
	}
}

// TestCreatedHandedBack: a kubeconfig that the provider made keeps its credentials and loses
// the route. Later the provider knows again that it made it.
func TestCreatedHandedBack(t *testing.T) {
	for name, off := range map[string]func(*world){
		"off":                     func(w *world) { w.annotate("mode", "off") },
		"off without an endpoint": func(w *world) { w.annotate("mode", "off"); w.cluster.Endpoint = kubeconfig.Endpoint{} },
		"secondary":               func(w *world) { w.annotate("mode", "secondary") },
	} {
		inBubble(t, name, func(t *testing.T, w *world) {
			w.cluster.HasControlPlane = false
			w.annotate("gateway", "http://gw.test:3128")
			w.annotate("route-secret", "route")
			w.route("route", map[string]string{"username": "u", "password": canary, "gateway": "http://gw.test:3128"})
			w.settle()
			made, endpoint := clientCertificate(t, w.secrets.Kubeconfig), w.cluster.Endpoint
			off(w)
			w.settle()
			w.happened(provider.ReasonHandedBack)
			w.proxy("")
			w.server(endpointA)
			s := w.secrets.Kubeconfig
			if strings.Contains(toJSON(s.Data), base64.StdEncoding.EncodeToString([]byte(canary))) || len(s.Data) != 2 || s.Annotations[provider.AnnotationManager] != "" || !clientCertificate(t, s).Equal(made) {
				t.Errorf("got %s, want its own credentials only", toJSON(s.ObjectMeta))
			}
			w.cluster.Endpoint = endpoint
			w.annotate("mode", "auto")
			w.settle()
			w.proxy("http://u:" + canary + "@gw.test:3128")
			left := w.secrets.Kubeconfig.DeepCopy()
			left.OwnerReferences = nil
			w.secrets.Kubeconfig = left
			w.settle()
			if len(w.secrets.Kubeconfig.OwnerReferences) != 1 {
				t.Error("not taken over after a restore")
			}
			state := string(left.Data[provider.DataState])
			for _, mark := range []string{`"created": true`, `"Created":true`, `"\u0063reated":true`} { // the admission policy does not look for these
				w.secrets.Kubeconfig = left.DeepCopy()
				w.secrets.Kubeconfig.Data[provider.DataState] = []byte(strings.Replace(state, `"created":true`, mark, 1))
				if w.do(w.plan()); len(w.secrets.Kubeconfig.OwnerReferences) != 0 {
					t.Errorf("%s is taken for a mark", mark)
				}
			}
		})
	}
}
