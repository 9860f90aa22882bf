package provider_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

const (
	attacker     = "http://attacker.test:3128"
	boundProxy   = "http://proxy.test:3128"
	otherCluster = "c2"
)

// spills reports whether a Secret that the plan has written holds the route Secret's password
// or names the Secret as the one with a client certificate.
func (w *world) spills() bool {
	for _, s := range []*corev1.Secret{w.secrets.Kubeconfig, w.secrets.Secondary} {
		if s == nil {
			continue
		}
		for key, value := range s.Data {
			if key != provider.DataState && (strings.Contains(string(value), canary) || strings.Contains(string(value), "name: route\n") || strings.Contains(string(value), `"name":"route"`)) {
				return true
			}
		}
	}
	return false
}

// Whoever may annotate a Cluster can name each Secret of its namespace, and each proxy: the
// credentials go to the proxy that the Secret is for, and to that of no other Cluster.
func TestSecretIsBound(t *testing.T) {
	type m = map[string]string
	password := func(more m) m {
		data := m{"username": "u", "password": canary}
		for key, value := range more {
			data[key] = value
		}
		return data
	}
	bound := password(m{"proxy-url": boundProxy})
	ticket := password(m{"gateway": "https://gateway.test:443"})
	own := func(w *world) { w.secrets.Route.Labels[kubeconfig.ClusterNameLabel] = name }
	others := func(w *world) { w.secrets.Route.Labels[kubeconfig.ClusterNameLabel] = otherCluster }
	sole := func(w *world) { w.secrets.SoleUser = true }
	const used, refused, unbound = provider.ReasonReady, provider.ReasonSecretRefused, provider.ReasonSecretUnbound
	for _, test := range []struct {
		name               string
		cluster, namespace m // annotations
		defaults           provider.Settings
		secret             m
		change             func(*world)
		want               string // the condition's reason
	}{
		{name: "its own proxy", cluster: m{"route-secret": "route"}, secret: bound, want: used},
		{name: "the same in both", cluster: m{"proxy-url": boundProxy, "route-secret": "route"}, secret: bound, want: used},
		{name: "as people write it", cluster: m{"proxy-url": "HTTP://PROXY.test.:03128/", "route-secret": "route"}, secret: bound, want: used},
		{name: "the port left out", cluster: m{"proxy-url": "http://proxy.test", "route-secret": "route"}, secret: password(m{"proxy-url": "http://proxy.test:80"}), want: used},
		{name: "an IPv6 address", cluster: m{"proxy-url": "http://[2001:DB8::0:1]:3128", "route-secret": "route"}, secret: password(m{"proxy-url": "http://[2001:db8::1]:3128"}), want: used},
		{name: "a name beyond ASCII", cluster: m{"proxy-url": "http://bücher.test:3128", "route-secret": "route"}, secret: password(m{"proxy-url": "http://xn--bcher-kva.test:3128"}), want: used},
		{name: "socks5h", cluster: m{"proxy-url": "socks5h://p.test", "route-secret": "route"}, secret: password(m{"proxy-url": "socks5://p.test:1080"}), want: used},
		{name: "the Cluster's", cluster: m{"route-secret": "route"}, secret: bound, change: own, want: used},
		{name: "a gateway", cluster: m{"route-secret": "route"}, secret: ticket, change: own, want: used},
		{name: "the operator's proxy, by flag", defaults: provider.Settings{ProxyURL: attacker, RouteSecret: "system/route"}, secret: password(nil), want: used},
		{name: "the operator's proxy, by Namespace", namespace: m{"proxy-url": attacker, "route-secret": "route"}, secret: password(nil), want: used},
		{name: "the operator's Secret, named again", cluster: m{"route-secret": "route"}, namespace: m{"proxy-url": attacker, "route-secret": "route"}, secret: password(nil), want: used},
		{name: "the Cluster's for the operator's proxy", cluster: m{"route-secret": "route"}, defaults: provider.Settings{ProxyURL: boundProxy}, secret: password(nil), change: own, want: used},
		{name: "no credentials", cluster: m{"proxy-url": attacker, "route-secret": "route"}, secret: m{"ca.crt": "x"}, change: others, want: used},

		{name: "another host", cluster: m{"proxy-url": attacker, "route-secret": "route"}, secret: bound, want: refused},
		{name: "another port", cluster: m{"proxy-url": "http://proxy.test:3129", "route-secret": "route"}, secret: bound, want: refused},
		{name: "in clear text", cluster: m{"proxy-url": "http://proxy.test:3129", "route-secret": "route"}, secret: password(m{"proxy-url": "https://proxy.test:3129"}), want: refused},
		{name: "a longer host", cluster: m{"proxy-url": "http://proxy.test.attacker.test:3128", "route-secret": "route"}, secret: bound, want: refused},
		{name: "a proxy as a gateway", cluster: m{"gateway": attacker, "route-secret": "route"}, secret: bound, want: refused},
		{name: "a ticket to a proxy", cluster: m{"proxy-url": attacker, "route-secret": "route"}, secret: ticket, want: refused},
		{name: "a ticket to another gateway", cluster: m{"gateway": attacker, "route-secret": "route"}, secret: ticket, want: refused},
		{name: "a ticket in clear text", cluster: m{"gateway": "http://gateway.test:443", "route-secret": "route"}, secret: ticket, want: refused},
		{name: "another Cluster's ticket", cluster: m{"route-secret": "route"}, secret: ticket, change: others, want: refused},
		{name: "another Cluster's ticket, under its name", cluster: m{"route-secret": "route", "tunnel-cluster": "clusters/c2"}, secret: ticket, change: others, want: refused},
		{name: "another Cluster's password", cluster: m{"route-secret": "route"}, defaults: provider.Settings{ProxyURL: boundProxy}, secret: password(nil), change: others, want: refused},
		{name: "the Namespace's, labelled as another Cluster's", namespace: m{"proxy-url": boundProxy, "route-secret": "route"}, secret: bound, change: others, want: refused},
		{name: "the flag's, labelled as another Cluster's", defaults: provider.Settings{Gateway: boundProxy, RouteSecret: "clusters/route"}, secret: password(nil), change: others, want: refused},
		{name: "user info in the URL", cluster: m{"route-secret": "route"}, secret: m{"proxy-url": "http://u:" + canary + "@proxy.test"}, change: others, want: refused},
		{name: "rewritten", cluster: m{"mode": "rewrite", "server": "attacker.test:443", "proxy-url": attacker, "route-secret": "route"}, secret: bound, want: refused},
		{name: "a second Secret", cluster: m{"mode": "secondary", "proxy-url": attacker, "route-secret": "route"}, secret: bound, want: refused},
		{name: "not probed", cluster: m{"probe": "off", "proxy-url": attacker, "route-secret": "route"}, secret: bound, want: refused},
		{name: "the Namespace's Secret", cluster: m{"proxy-url": attacker, "route-secret": "route"}, namespace: m{"route-secret": "route"}, secret: password(nil), change: sole, want: refused},
		{name: "the flag's Secret", cluster: m{"gateway": attacker, "route-secret": "route"}, defaults: provider.Settings{RouteSecret: "clusters/route"}, secret: password(nil), change: sole, want: refused},
		{name: "a client certificate", cluster: m{"proxy-url": "https://attacker.test", "route-secret": "route"}, secret: m{"tls.crt": "x", "tls.key": "y", "proxy-url": "https://p.test"}, want: refused},
		{name: "the label of the tunnel", cluster: m{"gateway": attacker}, secret: ticket, change: func(w *world) { w.cluster.Tunnel = true; own(w) }, want: refused},

		{name: "old, of one Cluster", cluster: m{"proxy-url": boundProxy, "route-secret": "route"}, secret: password(nil), change: sole, want: unbound},
		{name: "old, for the operator's proxy", cluster: m{"route-secret": "route"}, defaults: provider.Settings{ProxyURL: boundProxy}, secret: password(nil), change: sole, want: unbound},
		{name: "old, of several", cluster: m{"proxy-url": boundProxy, "route-secret": "route"}, secret: password(nil), want: refused},
		{name: "old, of another", cluster: m{"proxy-url": boundProxy, "route-secret": "route"}, secret: password(nil), change: func(w *world) { sole(w); others(w) }, want: refused},
	} {
		inBubble(t, test.name, func(t *testing.T, w *world) {
			w.controlPlane()
			w.cluster.Annotations, w.cluster.NamespaceAnnotations, w.config.Defaults = prefixed(test.cluster), prefixed(test.namespace), test.defaults
			w.route("route", test.secret)
			if test.change != nil {
				test.change(w)
			}
			if test.secret["ca.crt"] != "" {
				w.secrets.Route.Data["ca.crt"] = w.ca.cert
			}
			w.settle()
			if c := w.cluster.Condition; c == nil || c.Reason != test.want || (c.Status == metav1.ConditionFalse) != (test.want == refused) {
				t.Fatalf("got condition %s, want %s", toJSON(c), test.want)
			}
			want := test.want != refused && test.secret["password"] != ""
			if got := w.spills(); got != want {
				t.Errorf("got credentials in the kubeconfig: %t, want %t", got, want)
			}
			warned := false
			for _, e := range w.events {
				warned = warned || e.Type == corev1.EventTypeWarning && e.Reason == test.want
			}
			if m := w.cluster.Condition.Message; test.want != used && !warned || test.want != used && !strings.Contains(m, "proxy-url") && !strings.Contains(m, "label") {
				t.Errorf("got %q, warned %t; want an Event, and the field to set", m, warned)
			}
			if m := w.cluster.Condition.Message; test.want == refused && (strings.Contains(m, "gateway.test") || strings.Contains(m, "proxy.test")) {
				t.Errorf("%q tells what the Secret holds", m)
			}
		})
	}
}

// What an earlier version has accepted of a Secret that is refused now is taken out. The
// proxy stays, as does a route that the Secret is for.
func TestStolenRoute(t *testing.T) {
	accepted := func(w *world, proxy string) {
		w.t.Helper()
		w.controlPlane()
		w.cluster.NamespaceAnnotations = prefixed(map[string]string{"proxy-url": proxy, "route-secret": "route"})
		w.wait(15 * time.Minute)
		if w.condition(metav1.ConditionTrue, provider.ReasonReady); !w.spills() {
			w.t.Fatal("the route has no credentials")
		}
		w.cluster.NamespaceAnnotations = nil
		w.annotate("proxy-url", proxy)
		w.annotate("route-secret", "route")
	}
	plain := map[string]string{"username": "u", "password": canary}
	for what, bind := range map[string]func(s *corev1.Secret){
		"another Cluster's":  func(s *corev1.Secret) { s.Labels[kubeconfig.ClusterNameLabel] = otherCluster },
		"for another proxy":  func(s *corev1.Secret) { s.Data["proxy-url"] = []byte(boundProxy) },
		"for another scheme": func(s *corev1.Secret) { s.Data["proxy-url"] = []byte("https://attacker.test:3128") },
	} {
		inBubble(t, what, func(t *testing.T, w *world) {
			w.route("route", plain)
			accepted(w, attacker)
			bind(w.secrets.Route)
			w.settle()
			w.condition(metav1.ConditionFalse, provider.ReasonSecretRefused)
			if w.proxy(attacker); w.spills() {
				t.Error("the credentials are kept")
			}
			w.happened(provider.ReasonSecretRefused)
			w.controlPlane()
			w.wait(15 * time.Minute)
			if w.proxy(attacker); w.spills() {
				t.Error("the credentials are back")
			}
		})
	}
	inBubble(t, "a client certificate", func(t *testing.T, w *world) {
		w.route("route", map[string]string{"tls.crt": string(w.ca.cert), "tls.key": string(w.ca.key)})
		accepted(w, "https://attacker.test")
		w.secrets.Route.Data["proxy-url"] = []byte("https://p.test")
		w.settle()
		if w.proxy("https://attacker.test"); w.spills() {
			t.Error("the Secret is still named")
		}
	})
	for what, after := range map[string]func(w *world){
		"the Secret's own proxy, and then another": func(w *world) {
			w.secrets.Route.Data["proxy-url"] = []byte(boundProxy)
			w.annotate("proxy-url", attacker)
		},
		"old, and then of several": func(*world) {},
	} {
		inBubble(t, what, func(t *testing.T, w *world) {
			w.route("route", plain)
			accepted(w, boundProxy)
			after(w)
			w.wait(15 * time.Minute)
			w.condition(metav1.ConditionFalse, provider.ReasonSecretRefused)
			w.proxy("http://u:" + canary + "@proxy.test:3128")
		})
	}
}

// A kubeconfig's author can name the route Secret beside a proxy of their own: the probe does
// not show the client certificate there.
func TestProbeReadsNoSecretForAnotherProxy(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		extended(w)
		w.route("route", map[string]string{"tls.crt": string(w.ca.cert), "tls.key": string(w.ca.key), "proxy-url": secureProxy})
		s := w.secrets.Kubeconfig.DeepCopy()
		s.Data["value"] = []byte(strings.Replace(string(s.Data["value"]), "    server:", `    extensions:
    - name: `+kubeconfig.ExtensionName+`
      extension: {apiVersion: `+kubeconfig.ExtensionAPIVersion+`, kind: `+kubeconfig.ExtensionKind+`, proxyTLS: {secret: {namespace: `+namespace+`, name: route}}}
    proxy-url: https://attacker.test
    server:`, 1))
		w.secrets.Kubeconfig = w.stored(s)
		w.probe = down("test")
		seen := map[string]bool{}
		for range 4 {
			w.config.Now = time.Now()
			a, err := provider.Plan(w.cluster, w.secrets, w.config)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range a.Probe {
				proxy := c.Config.Clusters[c.Config.Contexts[c.Config.CurrentContext].Cluster].ProxyURL
				if c.Extension {
					seen[proxy] = true
				}
				if c.Secret != nil && proxy != secureProxy {
					t.Errorf("the Secret is read for %s", proxy)
				}
				w.answer(c)
			}
			w.do(a)
		}
		if !seen["https://attacker.test"] || !seen[secureProxy] {
			t.Errorf("got probes by the extension of %v, want both", seen)
		}
	})
}

// A Cluster's second Secret is not another Cluster's, whose records hold its route.
func TestSecondaryOfAnother(t *testing.T) {
	inBubble(t, "", func(t *testing.T, w *world) {
		besideFirst(w)
		w.secrets.Secondary.Labels[kubeconfig.ClusterNameLabel] = otherCluster
		before := toJSON(w.secrets.Secondary)
		w.annotate("proxy-url", proxyB)
		w.settle()
		w.condition(metav1.ConditionFalse, provider.ReasonNotOurs)
		w.annotate("mode", "decorate")
		w.settle()
		if w.secrets.Secondary == nil || toJSON(w.secrets.Secondary) != before {
			t.Error("another Cluster's Secret was written or deleted")
		}
	})
}
