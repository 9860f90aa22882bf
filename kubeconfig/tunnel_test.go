package kubeconfig_test

import (
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/kubeconfig"
)

func TestBuildTunnel(t *testing.T) {
	const url = "http://u:p%40ss@gw.test:3128"
	for _, test := range []struct {
		name                        string
		tunnel                      kubeconfig.Tunnel
		change                      func(*kubeconfig.Spec)
		server, serverName, gateway string
	}{
		{
			"the user is for one cluster", kubeconfig.Tunnel{Gateway: "http://gw.test:3128", User: "u", Password: "p@ss"}, nil,
			"https://kubernetes.default.svc:443", "kubernetes.default.svc", url,
		},
		{
			"the user is the cluster", kubeconfig.Tunnel{Gateway: "socks5h://gw.test:1080", Cluster: "default/prod", Password: "p"}, nil,
			"https://kubernetes.default.svc:443", "kubernetes.default.svc", "socks5://default%2Fprod:p@gw.test:1080",
		},
		{
			"the name says the cluster",
			kubeconfig.Tunnel{Gateway: "http://gw.test:3128", User: "u", Password: "p@ss", Cluster: "default/prod"},
			func(s *kubeconfig.Spec) {
				s.Endpoint = kubeconfig.Endpoint{Host: "kubernetes.default.svc.prod.default.zone.test", Port: 443}
			},
			"https://kubernetes.default.svc.prod.default.zone.test:443", "kubernetes.default.svc", url,
		},
		{
			"https: the gateway is verified by its own name", kubeconfig.Tunnel{Gateway: "https://gw.test", User: "u", Password: "p"}, nil,
			"https://kubernetes.default.svc:443", "", "https://u:p@gw.test",
		},
		{
			"another target and name", kubeconfig.Tunnel{Gateway: "http://gw.test:3128", User: "u", Password: "p@ss"},
			func(s *kubeconfig.Spec) {
				s.Endpoint, s.TLSServerName = kubeconfig.Endpoint{Host: "10.0.0.1", Port: 6443}, "api.test"
			},
			"https://10.0.0.1:6443", "api.test", url,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := kubetest.Spec(pki.NewCAWith(nil, nil))
			spec.Endpoint, spec.Route = kubeconfig.Endpoint{}, kubeconfig.Route{Tunnel: &test.tunnel}
			if test.change != nil {
				test.change(&spec)
			}
			config, err := spec.Build()
			if err != nil {
				t.Fatal(err)
			}
			data, err := clientcmd.Write(*config)
			if err != nil {
				t.Fatal(err)
			}
			if config, err = clientcmd.Load(data); err != nil {
				t.Fatal(err)
			}
			c := config.Clusters["c1"]
			if c.Server != test.server || c.TLSServerName != test.serverName || c.ProxyURL != test.gateway {
				t.Errorf("got server %s, name %q, proxy %s\nwant %s, %q, %s",
					c.Server, c.TLSServerName, c.ProxyURL, test.server, test.serverName, test.gateway)
			}
			if _, err := clientcmd.RESTConfigFromKubeConfig(data); err != nil {
				t.Errorf("clientcmd: %v", err)
			}
		})
	}
}

func TestTunnelPrints(t *testing.T) {
	tunnel := kubeconfig.Tunnel{Gateway: "http://u:" + kubetest.Canary + "@gw.test", User: "u", Password: kubetest.Canary, Cluster: "default/prod"}
	for what, v := range map[string]any{
		"Tunnel": tunnel, "*Tunnel": &tunnel, "Route": kubeconfig.Route{Tunnel: &tunnel}, "Spec": kubeconfig.Spec{Route: kubeconfig.Route{Tunnel: &tunnel}},
	} {
		kubetest.CheckLeaks(t, what, v)
	}
	if got, want := (kubeconfig.Route{Tunnel: &tunnel}).String(), `tunnel to "default/prod" by http://gw.test`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
