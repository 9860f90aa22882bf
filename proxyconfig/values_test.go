package proxyconfig_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/proxyconfig"
)

// rfcValues are those of Giant Swarm's RFC.
func rfcValues(t testing.TB) proxyconfig.ClusterValues {
	return proxyconfig.ClusterValues{
		Name: "mycluster", Namespace: "org-giantswarm", Config: must(rfcLayers().Merge())(t).Config,
		PodCIDR: "100.96.0.0/11", ServiceCIDR: "10.96.0.0/12",
	}
}

// rfcConfigMap is the sample of the RFC, byte for byte.
const rfcConfigMap = `calico:
  CIDR: 100.96.0.0/11
kubernetes:
  API:
    clusterIPRange: 10.96.0.0/12
  DNS:
    IP: 10.96.0.10
proxy:
  noProxy: cluster.local,100.64.0.0/13,100.96.0.0/11,178.170.32.59,172.16.0.0/16,internal.corpdomain.net,example.com,svc,127.0.0.1,localhost
`

// rfcDropIn is the sample of the RFC, byte for byte: with the installation's list.
const rfcDropIn = `[Service]
Environment="HTTP_PROXY=http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128"
Environment="http_proxy=http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128"
Environment="HTTPS_PROXY=http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128"
Environment="https_proxy=http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128"
Environment="NO_PROXY=172.16.0.0/16,internal.corpdomain.net,example.com"
Environment="no_proxy=172.16.0.0/16,internal.corpdomain.net,example.com"
`

// rfcSecret is the sample of the RFC, byte for byte.
const rfcSecret = `cluster:
  proxy:
    httpProxy: http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128
    httpsProxy: http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128
`

// rfcInstallation is the sample of the RFC of what an operator is told, byte for
// byte.
const rfcInstallation = `proxy:
  noProxy: "172.16.0.0/16,internal.corpdomain.net,example.com"
  http: "http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128"
  https: "http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128"
`

// chartsConfigMap and chartsSecret are what charts of today read; LIST is the list.
const chartsConfigMap = `cluster:
  calico:
    CIDR: 100.96.0.0/11
  kubernetes:
    API:
      clusterIPRange: 10.96.0.0/12
    DNS:
      IP: 10.96.0.10
  proxy:
    noProxy: LIST
`

const chartsSecret = `cluster:
  proxy:
    http: http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128
    httpProxy: http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128
    https: http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128
    httpsProxy: http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128
    noProxy: LIST
env:
- name: HTTP_PROXY
  value: http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128
- name: HTTPS_PROXY
  value: http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128
- name: NO_PROXY
  value: LIST
global:
  connectivity:
    proxy:
      enabled: true
      httpProxy: http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128
      httpsProxy: http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128
      noProxy: LIST
http_proxy: http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128
https_proxy: http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128
no_proxy: LIST
`

func TestGoldenValues(t *testing.T) {
	for _, c := range []struct {
		name              string
		change            func(*proxyconfig.ClusterValues)
		object, systemd   string
		configMap, secret string
	}{
		{"charts", func(*proxyconfig.ClusterValues) {}, "mycluster-cluster-values", "mycluster-systemd-proxy", chartsConfigMap, chartsSecret},
		{"RFC", func(v *proxyconfig.ClusterValues) { v.Layout = proxyconfig.LayoutRFC }, "mycluster-cluster-values", "mycluster-systemd-proxy", rfcConfigMap, rfcSecret},
		{"names of its own", func(v *proxyconfig.ClusterValues) { v.ValuesName, v.SystemdName = "proxy-values", "machine-proxies" },
			"mycluster-proxy-values", "mycluster-machine-proxies", chartsConfigMap, chartsSecret},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := rfcValues(t)
			c.change(&v)
			got := must(v.Build())(t)
			for _, c := range []struct{ what, got, want string }{
				{"ConfigMap", got.ConfigMap.Namespace + "/" + got.ConfigMap.Name, "org-giantswarm/" + c.object},
				{"Secret", got.Secret.Namespace + "/" + got.Secret.Name, "org-giantswarm/" + c.object},
				{"systemd Secret", got.SystemdProxy.Namespace + "/" + v.SystemdSecret(), "org-giantswarm/" + c.systemd},
				{"systemd Secret's name", got.SystemdProxy.Name, c.systemd},
				{"ConfigMap's values", got.ConfigMap.Data["values"], strings.ReplaceAll(c.configMap, "LIST", golden)},
				{"Secret's values", string(got.Secret.Data["values"]), strings.ReplaceAll(c.secret, "LIST", golden)},
			} {
				if diff := cmp.Diff(c.want, c.got); diff != "" {
					t.Errorf("%s: %s", c.what, diff)
				}
			}
			want := map[string]string{"giantswarm.io/cluster": "mycluster", "giantswarm.io/managed-by": "causeway"}
			for _, meta := range []metav1.ObjectMeta{got.ConfigMap.ObjectMeta, got.Secret.ObjectMeta, got.SystemdProxy.ObjectMeta} {
				if !maps.Equal(meta.Labels, want) {
					t.Errorf("got labels %v, want %v", meta.Labels, want)
				}
				if !strings.Contains(meta.Annotations["giantswarm.io/notes"], "causeway") {
					t.Errorf("got annotations %v, want a note of who manages it", meta.Annotations)
				}
			}
			if again := must(v.Build())(t); !cmp.Equal(got, again) {
				t.Error("the second time differs")
			}
		})
	}
}

// Bug: containerd got the installation's list, and not the computed one.
func TestContainerdsList(t *testing.T) {
	v := rfcValues(t)
	computed := strings.ReplaceAll(rfcDropIn, "PROXY=172.16", "PROXY=cluster.local,100.64.0.0/13,100.96.0.0/11,178.170.32.59,172.16")
	computed = strings.ReplaceAll(computed, "proxy=172.16", "proxy=cluster.local,100.64.0.0/13,100.96.0.0/11,178.170.32.59,172.16")
	computed = strings.ReplaceAll(computed, `example.com"`, `example.com,svc,127.0.0.1,localhost"`)
	if diff := cmp.Diff(computed, string(must(v.Build())(t).SystemdProxy.Data["containerdProxy"])); diff != "" {
		t.Error("computed: " + diff)
	}
	v.ContainerdNoProxy = rfcLayers().Installation.NoProxy
	if diff := cmp.Diff(rfcDropIn, string(must(v.Build())(t).SystemdProxy.Data["containerdProxy"])); diff != "" {
		t.Error("the installation's: " + diff)
	}
}

// Bug: html/template made entities of + & and ' in a password.
func TestNoEntitiesInPasswords(t *testing.T) {
	v := rfcValues(t)
	v.Config = config("http://user:a+b&c'd@proxy:3128")
	o := must(v.Build())(t)
	for _, text := range []string{string(o.Secret.Data["values"]), string(o.SystemdProxy.Data["containerdProxy"])} {
		if !strings.Contains(text, "a+b&c'd@") || strings.Contains(text, "&amp;") || strings.Contains(text, "&#") {
			t.Errorf("the password is not as it was:\n%s", text)
		}
	}
}

// Bug: % was not doubled for systemd, which expands %40 otherwise.
func TestPercentIsDoubledForSystemd(t *testing.T) {
	v := rfcValues(t)
	v.Config = config("http://user:a%40b@proxy:3128")
	o := must(v.Build())(t)
	if text := string(o.SystemdProxy.Data["containerdProxy"]); strings.Count(text, "a%%40b") != 4 {
		t.Errorf("got, want %%%%40 four times:\n%s", text)
	}
	if text := string(o.Secret.Data["values"]); strings.Count(text, "a%40b") != 10 {
		t.Errorf("got, want %%40 ten times:\n%s", text)
	}
}

// Bug: the list began with a comma where one of its parts was empty.
func TestNoLeadingComma(t *testing.T) {
	layers := rfcLayers()
	layers.Installation.NoProxy = ",a.test,,"
	for _, layout := range []int{0, 1} {
		if layout == 0 {
			layers.Cluster.Layout = 0
		}
		m := must(layers.Merge())(t)
		if list := "," + m.NoProxy + ","; strings.Contains(list, ",,") {
			t.Errorf("got %s", m.NoProxy)
		}
	}
}

func TestWhereCredentialsGo(t *testing.T) {
	const with, without = "http://myProxyUser:mySuperSecretPassword@192.168.52.220:3128", "http://192.168.52.220:3128"
	for _, c := range []struct {
		name           string
		credentials    proxyconfig.Credentials
		envSecret      string
		apps, machines int // how often the password is there
	}{
		{"everywhere", proxyconfig.CredentialsEverywhere, "", 10, 4},
		{"everywhere, env by a Secret", proxyconfig.CredentialsEverywhere, "proxy", 8, 4},
		{"machines", proxyconfig.CredentialsOnMachines, "", 0, 4},
		{"machines, env by a Secret", proxyconfig.CredentialsOnMachines, "proxy", 0, 4},
		{"nowhere", proxyconfig.CredentialsNowhere, "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := rfcValues(t)
			v.Credentials, v.EnvSecret = c.credentials, c.envSecret
			o := must(v.Build())(t)
			apps, machines := string(o.Secret.Data["values"]), string(o.SystemdProxy.Data["containerdProxy"])
			if got := strings.Count(apps, with); got != c.apps {
				t.Errorf("apps: got the password %d times, want %d:\n%s", got, c.apps, apps)
			}
			if got := strings.Count(machines, with); got != c.machines {
				t.Errorf("machines: got the password %d times, want %d:\n%s", got, c.machines, machines)
			}
			for _, key := range []string{"kubeadmProxy", "kube-apiserver-patch", "kube-controller-manager-patch", "kube-scheduler-patch", "etcd-patch"} {
				want := with // what pods have
				if c.apps == 0 {
					want = without
				}
				if text := string(o.SystemdProxy.Data[key]); strings.Count(text, want) != 4 {
					t.Errorf("%s: want %s 4 times:\n%s", key, want, text)
				}
			}
			urls := 10
			if c.envSecret != "" {
				urls = 8
			}
			if got := strings.Count(apps, with) + strings.Count(apps, without); got != urls {
				t.Errorf("got %d URLs for apps, want %d", got, urls)
			}
			if got := strings.Count(apps, "key: HTTPS_PROXY"); got != strings.Count(apps, "name: proxy\n")/2 || (got == 4) != (c.envSecret != "") {
				t.Errorf("got %d references to the Secret:\n%s", got, apps)
			}
			if text := must(yaml.Marshal(o.ConfigMap))(t); strings.Contains(string(text), "192.168.52.220") {
				t.Errorf("the proxy is in the ConfigMap:\n%s", text)
			}
		})
	}
}

func TestInvalidValues(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*proxyconfig.ClusterValues)
	}{
		{"Name", func(v *proxyconfig.ClusterValues) { v.Name = "" }},
		{"Namespace", func(v *proxyconfig.ClusterValues) { v.Name, v.Namespace = "", "" }},
		{"Name", func(v *proxyconfig.ClusterValues) { v.Name = "A_b" }},
		{"Name", func(v *proxyconfig.ClusterValues) { v.Name = strings.Repeat("a", 64) }},
		{"Namespace", func(v *proxyconfig.ClusterValues) { v.Namespace = "" }},
		{"Config.HTTPProxy", func(v *proxyconfig.ClusterValues) { v.Config.HTTPProxy = "http://u:SECRET@x@a" }},
		{"ContainerdNoProxy", func(v *proxyconfig.ClusterValues) { v.ContainerdNoProxy = "SECRET@a" }},
		{"Credentials", func(v *proxyconfig.ClusterValues) { v.Credentials = 3 }},
		{"Credentials", func(v *proxyconfig.ClusterValues) { v.Credentials = -1 }},
		{"EnvSecret", func(v *proxyconfig.ClusterValues) { v.EnvSecret = "A b" }},
		{"EnvSecret", func(v *proxyconfig.ClusterValues) { v.EnvSecret, v.Layout = "proxy", proxyconfig.LayoutRFC }},
		{"Layout", func(v *proxyconfig.ClusterValues) { v.Layout = 2 }},
		{"ValuesName", func(v *proxyconfig.ClusterValues) { v.ValuesName = "-proxy-values" }},
		{"ValuesName", func(v *proxyconfig.ClusterValues) { v.ValuesName = "proxy" }},
		{"SystemdName", func(v *proxyconfig.ClusterValues) { v.ValuesName, v.SystemdName = "x-y", "x-y" }},
		{"SystemdName", func(v *proxyconfig.ClusterValues) { v.SystemdName = "cluster-values" }},
		{"SystemdName", func(v *proxyconfig.ClusterValues) { v.SystemdName = "a_b" }},
		{"ValuesName", func(v *proxyconfig.ClusterValues) { v.ValuesName = "systemd-proxy" }},
		{"ValuesName", func(v *proxyconfig.ClusterValues) { v.ValuesName = "my-kubeconfig" }},
		{"ValuesName", func(v *proxyconfig.ClusterValues) { v.ValuesName = strings.Repeat("a", 250) }},
		{"Config.NoProxy", func(v *proxyconfig.ClusterValues) { v.Config.NoProxy = "*" }},
		{"Config.NoProxy", func(v *proxyconfig.ClusterValues) { v.Config.NoProxy = strings.Repeat("a.test,", 15000) }},
		{"Config.NoProxy", func(v *proxyconfig.ClusterValues) { v.Config.NoProxy = "[fd00::1]:443,a" }},
		{"Config.NoProxy", func(v *proxyconfig.ClusterValues) { v.Config.NoProxy = "a.test, # b.test" }},
		{"Config.NoProxy", func(v *proxyconfig.ClusterValues) { v.Config.NoProxy = "a.test: b.test" }},
		{"Config.NoProxy", func(v *proxyconfig.ClusterValues) { v.Config.NoProxy = "10.0" }},
		{"Config.NoProxy", func(v *proxyconfig.ClusterValues) { v.Config.NoProxy = "a.test,fd00::" }},
		{"ManagedBy", func(v *proxyconfig.ClusterValues) { v.ManagedBy = "a b" }},
	} {
		v := rfcValues(t)
		c.change(&v)
		o, err := v.Build()
		if v.Name == "" && strings.Count(err.Error(), "Name: ") != 1 {
			t.Errorf("got %q of no name, want once that it is required", err)
		}
		var field *proxyconfig.FieldError
		if o != nil || !errors.As(err, &field) || field.Field != c.field || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: got error %v, want a *FieldError for it", c.field, err)
		}
	}
}
