package proxyconfig_test

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http/httpproxy"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
)

// rfcFiles is the sample of the RFC, with a cluster's name.
const rfcFiles = `files:
  - path: /etc/systemd/system/containerd.service.d/http-proxy.conf
    permissions: "0600"
    contentFrom:
      secret:
        name: prod-systemd-proxy
        key: containerdProxy   
`

func TestKubeadmFilesAreTheRFCs(t *testing.T) {
	var want struct{ Files []proxyconfig.File }
	if err := yaml.UnmarshalStrict([]byte(rfcFiles), &want); err != nil {
		t.Fatal(err)
	}
	got := must(proxyconfig.Kubeadm{Secret: proxyconfig.ClusterValues{Name: "prod"}.SystemdSecret()}.Build())(t)
	if diff := cmp.Diff(want.Files, got.Files); diff != "" {
		t.Error(diff)
	}
}

func TestKubeadmUnits(t *testing.T) {
	got := must(proxyconfig.Kubeadm{Secret: "a", Units: []string{"containerd", "kubelet.service", "my@unit-1", "kubelet", "a.socket.service"}}.Build())(t)
	want := &proxyconfig.KubeadmSpec{PreKubeadmCommands: []string{"systemctl daemon-reload", "systemctl try-restart containerd.service || true",
		"systemctl try-restart kubelet.service || true", "systemctl try-restart my@unit-1.service || true", "systemctl try-restart a.socket.service || true"}}
	for _, unit := range []string{"containerd", "kubelet", "my@unit-1", "a.socket"} {
		want.Files = append(want.Files, proxyconfig.File{Path: "/etc/systemd/system/" + unit + ".service.d/http-proxy.conf", Permissions: "0600",
			ContentFrom: proxyconfig.FileSource{Secret: proxyconfig.SecretKey{Name: "a", Key: "containerdProxy"}}})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestInvalidKubeadm(t *testing.T) {
	bad := proxyconfig.Config{HTTPProxy: "http://u:SECRET@x@a"}
	for _, c := range []struct {
		field string
		k     proxyconfig.Kubeadm
	}{
		{"Secret", proxyconfig.Kubeadm{}},
		{"Units[0]", proxyconfig.Kubeadm{Secret: "a", Units: []string{""}}},
		{"Units[0]", proxyconfig.Kubeadm{Secret: "a", Units: []string{".service"}}},
		{"Units[1]", proxyconfig.Kubeadm{Secret: "a", Units: []string{"a", "../x"}}},
		{"Units[0]", proxyconfig.Kubeadm{Secret: "a", Units: []string{"a b"}}},
		{"Units[0]", proxyconfig.Kubeadm{Secret: "a", Units: []string{"a\n"}}},
		{"Units[0]", proxyconfig.Kubeadm{Secret: "a", Units: []string{"a;b"}}},
		{"Units[0]", proxyconfig.Kubeadm{Secret: "a", Units: []string{"--all"}}},
		{"Units[1]", proxyconfig.Kubeadm{Secret: "a", Units: []string{"a", "docker.socket"}}},
		{"StaticPods", proxyconfig.Kubeadm{Secret: "a", StaticPods: 5}},
		{"StaticPods", proxyconfig.Kubeadm{Secret: "a", StaticPods: -1}},
		{"Config.HTTPProxy", proxyconfig.Kubeadm{Secret: "a", StaticPods: proxyconfig.StaticPodsExtraEnvs, Config: bad}},
	} {
		spec, err := c.k.Build()
		var field *proxyconfig.FieldError
		if spec != nil || !errors.As(err, &field) || field.Field != c.field || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("got error %v, want a *FieldError for %s", err, c.field)
		}
	}
}

// A way that refers to the Secret refers to keys that it has.
func TestStaticPodsReferToTheSecret(t *testing.T) {
	v := rfcValues(t)
	o := must(v.Build())(t)
	for way, want := range map[proxyconfig.StaticPods]int{proxyconfig.StaticPodsNone: 1, proxyconfig.StaticPodsEnvironment: 2,
		proxyconfig.StaticPodsPatches: 5, proxyconfig.StaticPodsExtraEnvs: 1} {
		spec := must(proxyconfig.Kubeadm{Secret: v.SystemdSecret(), StaticPods: way, Config: v.Config}.Build())(t)
		if len(spec.Files) != want {
			t.Errorf("%d: got %d files, want %d", way, len(spec.Files), want)
		}
		for _, f := range spec.Files {
			s := f.ContentFrom.Secret
			if s.Name != o.SystemdProxy.Name || len(o.SystemdProxy.Data[s.Key]) == 0 || f.Permissions != "0600" {
				t.Errorf("%d: got %+v, of which the Secret %s has nothing", way, f, o.SystemdProxy.Name)
			}
		}
	}
}

// Each static pod has the list twice, and a Secret 1 MiB.
func TestListsThatFitIntoTheSecret(t *testing.T) {
	for size, want := range map[int]bool{80_000: true, 100_000: false} {
		v := rfcValues(t)
		v.Config.NoProxy = strings.Repeat("a.test,", size/7)
		o, err := v.Build()
		var field *proxyconfig.FieldError
		if want && err != nil || !want && (!errors.As(err, &field) || field.Field != "Config.NoProxy" || o != nil) {
			t.Errorf("%d bytes: got error %v", size, err)
		}
	}
}

func TestExtraEnvsHaveNoCredentialsUnlessAskedFor(t *testing.T) {
	c := config("http://user:SECRET@proxy:3128")
	for way, want := range map[proxyconfig.StaticPods]proxyconfig.Config{
		proxyconfig.StaticPodsExtraEnvs: c.WithoutCredentials(), proxyconfig.StaticPodsExtraEnvsWithCredentials: c,
	} {
		got := must(proxyconfig.Kubeadm{Secret: "a", StaticPods: way, Config: c}.Build())(t).ClusterConfiguration
		for _, envs := range []proxyconfig.ExtraEnvs{got.APIServer, got.ControllerManager, got.Scheduler, got.Etcd.Local} {
			if diff := cmp.Diff(want.EnvVars(), envs.ExtraEnvs); diff != "" {
				t.Error(diff)
			}
		}
		if got := must(proxyconfig.Kubeadm{Secret: "a", StaticPods: way}.Build())(t); got.ClusterConfiguration != nil {
			t.Errorf("got %+v of no proxy, want nothing", got.ClusterConfiguration)
		}
	}
}

func TestLintStaticPods(t *testing.T) {
	all := noproxy.Cluster{NodeCIDRs: []string{"10.1.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/12"}, PodCIDRs: []string{"10.244.0.0/16"}, ControlPlaneHosts: []string{"api.test"}}
	without := func(change func(*noproxy.Cluster)) noproxy.Cluster { c := all; change(&c); return c }
	const secret = "http://u:SECRET@proxy.test:3128"
	for _, c := range []struct {
		name    string
		cluster noproxy.Cluster
		proxy   string
		way     proxyconfig.StaticPods
		want    []string
	}{
		{"all is known", all, secret, proxyconfig.StaticPodsEnvironment, nil},
		{"no static pods", noproxy.Cluster{}, secret, proxyconfig.StaticPodsNone, nil},
		{"no nodes", without(func(c *noproxy.Cluster) { c.NodeCIDRs = nil }), secret, proxyconfig.StaticPodsPatches, []string{"--nodes"}},
		{"all addresses are nodes", without(func(c *noproxy.Cluster) { c.NodeCIDRs = []string{"0.0.0.0/0"} }), secret, proxyconfig.StaticPodsPatches, []string{"--nodes"}},
		{"nodes within another network", without(func(c *noproxy.Cluster) { c.Extra = []string{"10.0.0.0/8"} }), secret, proxyconfig.StaticPodsPatches, nil},
		{"the other layout", without(func(c *noproxy.Cluster) { c.Layout = noproxy.GiantSwarm }), secret, proxyconfig.StaticPodsPatches, nil},
		{"nothing is known", noproxy.Cluster{}, "", proxyconfig.StaticPodsEnvironment, []string{"--nodes", "--services", "--pods", "--control-plane"}},
		{"a password that is left out", all, secret, proxyconfig.StaticPodsExtraEnvs, []string{"--static-pods patches"}},
		{"a password that is asked for", all, secret, proxyconfig.StaticPodsExtraEnvsWithCredentials, nil},
	} {
		m := must(proxyconfig.Layers{Installation: proxyconfig.Config{HTTPSProxy: c.proxy}, Cluster: c.cluster}.Merge())(t)
		var got []string
		for _, f := range m.LintStaticPods(c.way) {
			_, flag, _ := strings.Cut(f.Write, "(")
			flag = flag[:strings.IndexAny(flag, ");")]
			got = append(got, flag)
			if strings.Contains(f.String(), "SECRET") {
				t.Errorf("%s: got %s", c.name, f)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// What static pods call is reached directly once nothing is reported, by the rules
// of Go, in which they are written.
func TestStaticPodsReachTheCluster(t *testing.T) {
	for _, layout := range []noproxy.Layout{noproxy.Merged, noproxy.GiantSwarm} {
		m := must(proxyconfig.Layers{
			Installation: proxyconfig.Config{HTTPProxy: "http://proxy.test:3128", HTTPSProxy: "http://proxy.test:3128"},
			Cluster: noproxy.Cluster{NodeCIDRs: []string{"10.1.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/12"}, PodCIDRs: []string{"10.244.0.0/16"},
				ControlPlaneHosts: []string{"api.prod.test"}, Layout: layout},
		}.Merge())(t)
		if findings := m.LintStaticPods(proxyconfig.StaticPodsEnvironment); len(findings) > 0 {
			t.Fatalf("got %v", findings)
		}
		proxyOf := (&httpproxy.Config{HTTPSProxy: m.HTTPSProxy, NoProxy: m.NoProxy}).ProxyFunc()
		for what, target := range map[string]string{
			"a webhook": "https://hook.team.svc:443", "etcd of the node": "https://127.0.0.1:2379", "another etcd": "https://10.1.0.5:2380",
			"a kubelet": "https://10.1.0.6:10250", "the API server of the node": "https://10.1.0.4:6443", "the control plane": "https://api.prod.test:6443",
			"the Service kubernetes": "https://10.96.0.1:443", "a pod of an aggregated API": "https://10.244.3.4:4443",
		} {
			if u, err := proxyOf(must(url.Parse(target))(t)); u != nil || err != nil {
				t.Errorf("layout %d: %s is reached through %v, %v", layout, what, u, err)
			}
		}
		if u, err := proxyOf(must(url.Parse("https://issuer.example.com"))(t)); u == nil || err != nil {
			t.Errorf("layout %d: got %v, %v for what is outside", layout, u, err)
		}
	}
}
