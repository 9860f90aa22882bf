package provider_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/kubeconfig/provider"
)

func prefixed(m map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range m {
		out[provider.Prefix+key] = value
	}
	return out
}

func TestResolve(t *testing.T) {
	type m = map[string]string
	base := provider.Settings{
		Mode: provider.Decorate, TunnelCluster: "clusters/c1", SecondaryName: "c1-proxied", Grace: 10 * time.Minute,
	}
	tests := []struct {
		name               string
		cluster, namespace m
		defaults           provider.Settings
		change             func(*provider.Settings)
	}{
		{name: "nothing", change: func(*provider.Settings) {}},
		{name: "auto is as nothing", cluster: m{"mode": "auto"}, defaults: provider.Settings{Mode: provider.Own}, change: func(*provider.Settings) {}},
		{name: "one by one", cluster: m{"tls-server-name": "x"}, namespace: m{"proxy-url": "http://n"}, defaults: provider.Settings{Grace: time.Hour, NoProxy: "a"},
			change: func(s *provider.Settings) {
				s.TLSServerName, s.ProxyURL, s.Grace, s.NoProxy = "x", "http://n", time.Hour, "a"
			}},
		{name: "the nearest wins", cluster: m{"proxy-url": "http://c"}, namespace: m{"proxy-url": "http://n"}, defaults: provider.Settings{ProxyURL: "http://d"},
			change: func(s *provider.Settings) { s.ProxyURL = "http://c" }},
		{name: "empty says nothing", cluster: m{"proxy-url": " "}, namespace: m{"proxy-url": "http://n"},
			change: func(s *provider.Settings) { s.ProxyURL = "http://n" }},
		{name: "direct", cluster: m{"proxy-url": "direct"}, defaults: provider.Settings{Gateway: "http://gw"},
			change: func(s *provider.Settings) { s.ProxyURL = "direct" }},
		{name: "a gateway before an outer proxy", cluster: m{"gateway": "http://gw"}, namespace: m{"proxy-url": "http://n"},
			change: func(s *provider.Settings) { s.Gateway = "http://gw" }},
		{name: "credentials of the outer proxy", cluster: m{"proxy-url": "http://mine"}, defaults: provider.Settings{ProxyURL: "http://d", RouteSecret: "system/proxy"},
			change: func(s *provider.Settings) { s.ProxyURL = "http://mine" }},
		{name: "own credentials for the outer proxy", cluster: m{"route-secret": "mine"}, defaults: provider.Settings{ProxyURL: "http://d", RouteSecret: "system/proxy"},
			change: func(s *provider.Settings) { s.ProxyURL, s.RouteSecret = "http://d", "clusters/mine" }},
		{name: "the installation's", defaults: provider.Settings{ProxyURL: "http://d", RouteSecret: "system/proxy", NoProbe: true},
			change: func(s *provider.Settings) { s.ProxyURL, s.RouteSecret, s.NoProbe = "http://d", "system/proxy", true }},
		{name: "probes on", cluster: m{"probe": "on"}, defaults: provider.Settings{NoProbe: true}, change: func(*provider.Settings) {}},
		{name: "rewrite", cluster: m{"mode": "rewrite", "server": "https://gw.svc:6443"},
			change: func(s *provider.Settings) { s.Mode, s.Server = provider.Rewrite, "https://gw.svc:6443" }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := provider.Cluster{Namespace: "clusters", Name: "c1", HasControlPlane: true, Annotations: prefixed(test.cluster), NamespaceAnnotations: prefixed(test.namespace)}
			got, err := provider.Resolve(c, provider.Config{Defaults: test.defaults})
			if err != nil {
				t.Fatal(err)
			}
			want := base
			test.change(&want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestResolveErrors(t *testing.T) {
	type m = map[string]string
	tests := []struct {
		name, annotation, says string
		cluster                m
		defaults               provider.Settings
	}{
		{"mode", "mode", "unknown", m{"mode": "decorated"}, provider.Settings{}},
		{"user info", "proxy-url", "route-secret", m{"proxy-url": "http://u:" + canary + "@p"}, provider.Settings{}},
		{"user info that is none", "proxy-url", "route-secret", m{"proxy-url": "http://u:" + canary + "/%@p"}, provider.Settings{}},
		{"gateway's user info", "gateway", "route-secret", m{"gateway": "http://u:" + canary + "@p"}, provider.Settings{}},
		{"both", "gateway", "want one", m{"gateway": "http://g", "proxy-url": "http://p"}, provider.Settings{}},
		{"a password as mode", "mode", "unknown", m{"mode": canary}, provider.Settings{}},
		{"too large", "mode", "annotations of the Cluster has more than 16 KiB", m{"mode": "annotations-of-more-than-16-KiB"}, provider.Settings{}},
		{"a password as Secret", "route-secret", "no name that a Secret can have", m{"route-secret": "joe:" + canary}, provider.Settings{}},
		{"foreign namespace", "route-secret", "namespace", m{"route-secret": "kube-system/x"}, provider.Settings{}},
		{"no namespace", "route-secret", "namespace/name", nil, provider.Settings{RouteSecret: "x"}},
		{"grace", "grace-period", "duration", m{"grace-period": "10"}, provider.Settings{}},
		{"negative grace", "grace-period", "positive", m{"grace-period": "-1s"}, provider.Settings{}},
		{"probe", "probe", "on or off", m{"probe": "no"}, provider.Settings{}},
		{"no-proxy", "no-proxy", "network", m{"no-proxy": "10.0.0.0/99"}, provider.Settings{}},
		{"secondary name", "secondary-name", "-kubeconfig", m{"mode": "secondary", "secondary-name": "c1-x-kubeconfig"}, provider.Settings{}},
		{"secondary name that no Secret has", "secondary-name", "name of a Secret", m{"mode": "secondary", "secondary-name": "No_Secret"}, provider.Settings{}},
		{"scheme", "proxy-url", "ftp", m{"proxy-url": "ftp://p"}, provider.Settings{}},
		{"direct in capitals", "proxy-url", "or direct, for none", m{"proxy-url": "DIRECT"}, provider.Settings{}},
		{"no host", "gateway", "host", m{"gateway": "http://"}, provider.Settings{}},
		{"no server", "server", "missing", m{"mode": "rewrite"}, provider.Settings{}},
		{"server", "server", "host:port", m{"mode": "rewrite", "server": "http://u:" + canary + "@x"}, provider.Settings{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := provider.Resolve(provider.Cluster{Namespace: "clusters", Name: "c1", Annotations: prefixed(test.cluster)}, provider.Config{Defaults: test.defaults})
			var e *provider.SettingError
			if !errors.As(err, &e) || e.Annotation != provider.Prefix+test.annotation || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("got %v, want one of %s that says %q", err, test.annotation, test.says)
			}
			if where := "Config.Defaults"; (e.Where == where) != (test.cluster == nil) {
				t.Errorf("got %s", e.Where)
			}
			if strings.Contains(err.Error(), canary) {
				t.Error("holds a secret")
			}
		})
	}
}

// A gateway without credentials is what the Cluster got wrong, and not the Secret that the
// defaults have for their own proxy.
func TestGatewayWithoutSecret(t *testing.T) {
	for _, defaults := range []provider.Settings{{}, {ProxyURL: "http://d", RouteSecret: "system/proxy"}} {
		inBubble(t, defaults.RouteSecret, func(t *testing.T, w *world) {
			w.controlPlane()
			w.config.Defaults = defaults
			w.annotate("gateway", "http://gw.test:3128")
			w.settle()
			w.condition(metav1.ConditionFalse, provider.ReasonInvalidSettings)
			w.message(provider.AnnotationGateway + " of the Cluster: needs a Secret with the key password: name one in " + provider.AnnotationRouteSecret)
		})
	}
}

// What is wrong with what the Secret adds is told of the Secret, whichever field it fills.
func TestSecretIsNamed(t *testing.T) {
	for field, data := range map[string]map[string]string{
		"gateway":   {"gateway": "ftp://gw.test", "password": canary},
		"proxy-url": {"proxy-url": "http://u:" + canary + "@[p.test"},
		"password":  {"gateway": "http://gw.test:3128"},
		"username":  {"gateway": "socks5://gw.test", "username": strings.Repeat("u", 256), "password": canary},
	} {
		inBubble(t, field, func(t *testing.T, w *world) {
			w.controlPlane()
			w.annotate("route-secret", "route")
			w.route("route", data)
			w.settle()
			w.condition(metav1.ConditionFalse, provider.ReasonInvalidSettings)
			w.message(provider.AnnotationRouteSecret + " of the Cluster: " + field + ": ")
			if m := w.cluster.Condition.Message; strings.Contains(m, canary) {
				t.Errorf("%q tells what the Secret holds", m)
			}
		})
	}
}

// What is wrong with an installation's Config is told before there is a Cluster, by the
// name of the field.
func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name   string
		config provider.Config
		says   string // empty: nothing is wrong
	}{
		{"nothing", provider.Config{}, ""},
		{"all of it", provider.Config{Defaults: provider.Settings{ProxyURL: "http://p", RouteSecret: "n/s", Mode: provider.Own, NoProxy: "10.0.0.0/8", Grace: time.Minute}}, ""},
		{"a Cluster names the server", provider.Config{Defaults: provider.Settings{Mode: provider.Rewrite}}, ""},
		{"unreadable", provider.Config{Defaults: provider.Settings{ProxyURL: "http://%zz" + canary}}, "Config.Defaults.ProxyURL"},
		{"scheme", provider.Config{Defaults: provider.Settings{ProxyURL: "ftp://p"}}, "Config.Defaults.ProxyURL"},
		{"password", provider.Config{Defaults: provider.Settings{ProxyURL: "http://u:" + canary + "@p"}}, "Config.Defaults.ProxyURL: holds user info: put it into the Secret that route-secret names"},
		{"gateway", provider.Config{Defaults: provider.Settings{Gateway: "http://"}}, "Config.Defaults.Gateway"},
		{"mode", provider.Config{Defaults: provider.Settings{Mode: "owned"}}, "Config.Defaults.Mode"},
		{"grace", provider.Config{Defaults: provider.Settings{Grace: -1}}, "Config.Defaults.Grace"},
		{"route-secret", provider.Config{Defaults: provider.Settings{RouteSecret: "s"}}, "Config.Defaults.RouteSecret"},
		{"server name", provider.Config{Defaults: provider.Settings{TLSServerName: "a b"}}, "Config.Defaults.TLSServerName"},
		{"interval", provider.Config{Interval: -1}, "Config.Interval"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.config.Check()
			if (err == nil) != (test.says == "") || err != nil && (!strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), canary)) {
				t.Errorf("got %v, want %q", err, test.says)
			}
		})
	}
}
