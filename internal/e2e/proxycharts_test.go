package e2e

import (
	"maps"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/proxyconfig"
)

// A chartReader is what the templates of a chart do with values, as its files have it.
type chartReader struct {
	chart, version string
	read           func(chartValues) proxyconfig.Config
	all            bool // it takes none of the three unless all are set
	quoted         bool // it writes them with quotes, or by toYaml
}

var chartReaders = []chartReader{
	{chart: "chart-operator", version: "4.2.0", read: ownThenCluster, all: true},
	{chart: "cert-manager-app", version: "4.1.1", read: ownThenCluster, quoted: true},
	{chart: "cert-manager-app", version: "3.13.0", read: topKeys},
	{chart: "kyverno-policies-connectivity", version: "0.10.2", read: ownThenCluster},
	{chart: "cluster-autoscaler-app", version: "2.0.4", read: ownThenCluster, all: true},
	{chart: "external-dns-app", version: "3.5.0", read: envList, quoted: true},
	{chart: "cluster", version: "8.0.0", read: globalSection, quoted: true},
}

// ownThenCluster is mustMerge of .Values.proxy, the user's, and .Values.cluster.proxy.
func ownThenCluster(v chartValues) proxyconfig.Config {
	either := func(key string) string {
		if own := v.text("proxy", key); own != "" {
			return own
		}
		return v.text("cluster", "proxy", key)
	}
	return proxyconfig.Config{HTTPProxy: either("http"), HTTPSProxy: either("https"), NoProxy: either("noProxy")}
}

func topKeys(v chartValues) proxyconfig.Config {
	return proxyconfig.Config{HTTPProxy: v.text("http_proxy"), HTTPSProxy: v.text("https_proxy"), NoProxy: v.text("no_proxy")}
}

// globalSection is nothing unless it is enabled. The chart adds entries to the list.
func globalSection(v chartValues) (c proxyconfig.Config) {
	section := v
	for _, key := range []string{"global", "connectivity", "proxy"} {
		section, _ = section[key].(map[string]any)
	}
	if section["enabled"] == true {
		c = proxyconfig.Config{HTTPProxy: section.text("httpProxy"), HTTPSProxy: section.text("httpsProxy"), NoProxy: section.text("noProxy")}
	}
	return c
}

func envList(v chartValues) proxyconfig.Config {
	found := map[string]string{}
	list, _ := v["env"].([]any)
	for _, e := range list {
		entry := chartValues(e.(map[string]any))
		found[entry.text("name")] = entry.text("value")
	}
	return proxyconfig.Config{HTTPProxy: found["HTTP_PROXY"], HTTPSProxy: found["HTTPS_PROXY"], NoProxy: found["NO_PROXY"]}
}

// environment is what pods of the chart get.
func (c chartReader) environment(t *testing.T, v chartValues) proxyconfig.Config {
	t.Helper()
	got := c.read(v)
	if c.all && (got.HTTPProxy == "" || got.HTTPSProxy == "" || got.NoProxy == "") {
		return proxyconfig.Config{}
	}
	if c.quoted {
		return got
	}
	for _, value := range []*string{&got.HTTPProxy, &got.HTTPSProxy, &got.NoProxy} {
		var line map[string]any
		if err := yaml.Unmarshal([]byte("value: "+*value), &line); err != nil {
			t.Fatalf("%s %s: %v", c.chart, c.version, err)
		}
		*value, _ = line["value"].(string)
	}
	return got
}

// chartValues are the values of a chart.
type chartValues map[string]any

// text returns the text at the path, or "".
func (v chartValues) text(path ...string) string {
	at := map[string]any(v)
	for _, key := range path[:len(path)-1] {
		at, _ = at[key].(map[string]any)
	}
	text, _ := at[path[len(path)-1]].(string)
	return text
}

// chartValuesOf merges the documents as App Platform does: ConfigMaps, the user's after
// the cluster's, then Secrets. The user's shares no key with ours.
func chartValuesOf(t *testing.T, v proxyconfig.ClusterValues, users string) chartValues {
	t.Helper()
	o, err := v.Build()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, text := range []string{o.ConfigMap.Data[proxyconfig.ValuesKey], users, string(o.Secret.Data[proxyconfig.ValuesKey])} {
		var document map[string]any
		if err := yaml.Unmarshal([]byte(text), &document); err != nil {
			t.Fatal(err)
		}
		overlay(all, document)
	}
	return all
}

func overlay(to, from map[string]any) {
	for key, value := range from {
		below, ok := value.(map[string]any)
		if at, okAt := to[key].(map[string]any); ok && okAt {
			overlay(at, below)
			continue
		}
		if ok {
			value = maps.Clone(below)
		}
		to[key] = value
	}
}

func chartsCluster(c proxyconfig.Config) proxyconfig.ClusterValues {
	return proxyconfig.ClusterValues{Name: "one", Namespace: "org", Config: c, PodCIDR: "100.96.0.0/11", ServiceCIDR: "10.96.0.0/12"}
}

// Each chart of today gets each password, and the list, as they are.
func TestChartsReadProxies(t *testing.T) {
	for _, c := range chartReaders {
		t.Run(c.chart+" "+c.version, func(t *testing.T) {
			for _, f := range passwordForms() {
				want := f.config("proxy.test:3128")
				if got := c.environment(t, chartValuesOf(t, chartsCluster(want), "")); got != want {
					t.Errorf("%s: got %v, want %v", f.name, got, want)
				}
			}
		})
	}
}

// The keys that are the user's are left to the user, and what the others mean stays.
func TestChartsUserValues(t *testing.T) {
	ours := passwordForms()[0].config("proxy.test:3128")
	if section := chartValuesOf(t, chartsCluster(ours), "")["proxy"]; section != nil {
		t.Errorf("got the section proxy %v, which is the user's", section)
	}
	v := chartValuesOf(t, chartsCluster(ours), "proxy: {noProxy: own.test, https: 'http://own.test:1'}")
	for _, c := range chartReaders[:2] {
		want := proxyconfig.Config{HTTPProxy: ours.HTTPProxy, HTTPSProxy: "http://own.test:1", NoProxy: "own.test"}
		if got := c.environment(t, v); got != want {
			t.Errorf("%s %s: got %v, want %v", c.chart, c.version, got, want)
		}
	}
	for path, want := range map[string]string{
		"cluster.calico.CIDR": "100.96.0.0/11", "cluster.kubernetes.API.clusterIPRange": "10.96.0.0/12", "cluster.kubernetes.DNS.IP": "10.96.0.10",
	} {
		if got := v.text(strings.Split(path, ".")...); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// Without credentials for charts, the pods of these refer to a Secret; those of
// chart-operator use the proxy without.
func TestChartsReferToSecret(t *testing.T) {
	cluster := chartsCluster(passwordForms()[0].config("proxy.test:3128"))
	cluster.Credentials, cluster.EnvSecret = proxyconfig.CredentialsOnMachines, "proxy"
	v := chartValuesOf(t, cluster, "")
	manager := v["cert-manager"].(map[string]any)
	for name, list := range map[string]any{
		"external-dns-app": v["env"], "cert-manager-app": manager["extraEnv"],
		"its webhook": manager["webhook"].(map[string]any)["extraEnv"], "its cainjector": manager["cainjector"].(map[string]any)["extraEnv"],
	} {
		refs := map[string]bool{}
		for _, e := range list.([]any) {
			entry := chartValues(e.(map[string]any))
			if entry.text("valueFrom", "secretKeyRef", "name") == "proxy" && entry.text("valueFrom", "secretKeyRef", "key") == entry.text("name") {
				refs[entry.text("name")] = true
			}
		}
		if !maps.Equal(refs, map[string]bool{"HTTP_PROXY": true, "HTTPS_PROXY": true}) {
			t.Errorf("%s: got references of %v", name, refs)
		}
	}
	if got := chartReaders[0].environment(t, v); got != cluster.Config.WithoutCredentials() {
		t.Errorf("chart-operator: got %v, want the proxy without credentials", got)
	}
}
