package kubeconfig_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

// fullRoute is a Spec with all that an extension can say.
func fullRoute(t testing.TB, ca *pki.CA) kubeconfig.Spec {
	spec := kubetest.Spec(ca)
	spec.Credentials = kubeconfig.Credentials{Token: "t"}
	spec.MoreEndpoints = []kubeconfig.Endpoint{spec.Endpoint, {Host: "2001:db8::1", Port: 443}, {Host: "b.test", Port: 6443}, {Host: "b.test", Port: 6443}}
	spec.Route = kubeconfig.Route{
		Tunnel:  &kubeconfig.Tunnel{Gateway: "https://gw.test", User: "u", Password: "p", Cluster: "default/prod"},
		NoProxy: "10.0.0.0/8,.a.test",
		Header:  map[string][]string{"X-Tenant": {"blue", "green"}},
		ProxyTLS: &kubeconfig.ProxyTLS{
			CA: ca.CertPEM(), ServerName: "proxy.test", Secret: &kubeconfig.SecretRef{Namespace: "ns", Name: "proxy-client"},
		},
	}
	return spec
}

// fullExtension is what fullRoute's is to be.
func fullExtension(ca *pki.CA) map[string]any {
	return map[string]any{
		"apiVersion": "kubeconfig.causewayproject.github.io/v1",
		"kind":       "Route",
		"endpoints":  []any{"[2001:db8::1]:443", "b.test:6443"},
		"gateway":    map[string]any{"cluster": "default/prod"},
		"header":     map[string]any{"X-Tenant": []any{"blue", "green"}},
		"noProxy":    "10.0.0.0/8,.a.test",
		"proxyTLS": map[string]any{
			"certificateAuthorityData": base64.StdEncoding.EncodeToString(ca.CertPEM()),
			"serverName":               "proxy.test",
			"secret":                   map[string]any{"namespace": "ns", "name": "proxy-client"},
		},
	}
}

func extensionOf(t testing.TB, cluster *clientcmdapi.Cluster) map[string]any {
	t.Helper()
	unknown, ok := cluster.Extensions[kubeconfig.ExtensionName].(*runtime.Unknown)
	if !ok {
		return nil
	}
	var got map[string]any
	if err := json.Unmarshal(unknown.Raw, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestBuildExtension(t *testing.T) {
	ca := pki.NewCAWith(nil, nil)
	with := func(change func(m map[string]any)) map[string]any {
		m := fullExtension(ca)
		change(m)
		return m
	}
	head := func() map[string]any {
		return with(func(m map[string]any) {
			for _, name := range []string{"endpoints", "gateway", "header", "noProxy", "proxyTLS"} {
				delete(m, name)
			}
		})
	}
	files := head()
	files["proxyTLS"] = map[string]any{"certificateAuthority": "/ca", "clientCertificate": "/crt", "clientKey": "/key"}
	tunnel := head()
	tunnel["gateway"] = map[string]any{"cluster": "c"}
	for _, test := range []struct {
		name   string
		change func(*kubeconfig.Spec)
		want   map[string]any
	}{
		{"everything", func(*kubeconfig.Spec) {}, fullExtension(ca)},
		{"the CA wins over its file", func(s *kubeconfig.Spec) { s.Route.ProxyTLS.CAFile = "/ca" }, fullExtension(ca)},
		{"files", func(s *kubeconfig.Spec) {
			s.MoreEndpoints = nil
			s.Route = kubeconfig.Route{ProxyURL: "https://p.test", ProxyTLS: &kubeconfig.ProxyTLS{CAFile: "/ca", CertificateFile: "/crt", KeyFile: "/key"}}
		}, files},
		{"a tunnel", func(s *kubeconfig.Spec) {
			s.Endpoint, s.MoreEndpoints = kubeconfig.Endpoint{}, nil
			s.Route = kubeconfig.Route{Tunnel: &kubeconfig.Tunnel{Gateway: "http://gw", Password: "p", Cluster: "c"}}
		}, tunnel},
		{"nothing beyond proxy-url", func(s *kubeconfig.Spec) {
			s.MoreEndpoints = []kubeconfig.Endpoint{s.Endpoint}
			s.Route = kubeconfig.Route{ProxyURL: "https://p.test", ProxyTLS: &kubeconfig.ProxyTLS{}, Header: map[string][]string{}}
		}, nil},
		{"direct", func(s *kubeconfig.Spec) { s.MoreEndpoints, s.Route = nil, kubeconfig.Route{Direct: true} }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := fullRoute(t, ca)
			test.change(&spec)
			config, err := spec.Build()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, extensionOf(t, config.Clusters["c1"])); diff != "" {
				t.Errorf("extension (-want +got):\n%s", diff)
			}
			if len(config.Clusters["c1"].Extensions) > 1 || test.want == nil && len(config.Clusters["c1"].Extensions) > 0 {
				t.Errorf("got extensions %v", config.Clusters["c1"].Extensions)
			}
		})
	}
}

// Other programs take the kubeconfig as though it had no extension, and keep it
// when they write: kubectl (clientcmd), Cluster API and Flux.
func TestExtensionIsIgnored(t *testing.T) {
	ca := pki.NewCAWith(nil, nil)
	config, err := fullRoute(t, ca).Build()
	if err != nil {
		t.Fatal(err)
	}
	plain := config.DeepCopy()
	plain.Clusters["c1"].Extensions = nil
	want, got := restOf(t, plain), restOf(t, config)
	if want.Host != got.Host || want.ServerName != got.ServerName || want.BearerToken != got.BearerToken || string(want.CAData) != string(got.CAData) {
		t.Errorf("got %v, want %v", got, want)
	}
	for range 2 {
		data, err := clientcmd.Write(*config)
		if err != nil {
			t.Fatal(err)
		}
		if config, err = clientcmd.Load(data); err != nil {
			t.Fatal(err)
		}
		// What kubectl config view --flatten and --minify do.
		if err := clientcmdapi.FlattenConfig(config); err != nil {
			t.Fatal(err)
		}
		if err := clientcmdapi.MinifyConfig(config); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(fullExtension(ca), extensionOf(t, config.Clusters["c1"])); diff != "" {
			t.Errorf("after a round trip (-want +got):\n%s", diff)
		}
	}
}

// The verbs with which a header could come out.
func TestHeaderIsSecret(t *testing.T) {
	spec := kubeconfig.Spec{Route: kubeconfig.Route{ProxyURL: "http://p", Header: map[string][]string{"Proxy-Authorization": {kubetest.Canary}}}}
	kubetest.CheckLeaks(t, "Spec", spec)
	kubetest.CheckLeaks(t, "Route", []any{spec.Route, &spec.Route})
}

func restOf(t *testing.T, config *clientcmdapi.Config) *rest.Config {
	t.Helper()
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A zone, which older versions wrote, is read and kept.
func TestMergeKeepsZone(t *testing.T) {
	spec := kubetest.Spec(pki.NewCAWith(nil, nil))
	spec.Route = kubeconfig.Route{Tunnel: &kubeconfig.Tunnel{Gateway: "http://gw", Password: "p", Cluster: "c"}}
	existing := strings.Replace(string(built(t, spec)), "cluster: c\n", "cluster: c\n          zone: zone.test\n", 1)
	got := merged(t, []byte(existing), kubeconfig.Spec{MoreEndpoints: []kubeconfig.Endpoint{{Host: "b.test", Port: 1}}})
	if text := string(got); !strings.Contains(text, "zone: zone.test") || !strings.Contains(text, "b.test:1") {
		t.Errorf("got\n%s", text)
	}
}
