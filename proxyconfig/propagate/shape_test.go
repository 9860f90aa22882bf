package propagate_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

// oldConfigMap and oldSecret are what was written before there was a Layout.
const (
	oldConfigMap = "calico:\n  CIDR: 100.96.0.0/11\nkubernetes:\n  API:\n    clusterIPRange: 100.64.0.0/13\n  DNS:\n    IP: 100.64.0.10\nproxy:\n  noProxy: " + golden + "\n"
	oldSecret    = "cluster:\n  proxy:\n    http: " + proxy + "\n    https: " + proxy + "\n    noProxy: " + golden +
		"\nenv:\n- name: NO_PROXY\n  value: " + golden + "\n- name: HTTP_PROXY\n  value: " + proxy + "\n- name: HTTPS_PROXY\n  value: " + proxy +
		"\nhttp_proxy: " + proxy + "\nhttps_proxy: " + proxy + "\nno_proxy: " + golden + "\n"
)

// Objects of the version before are read, and written once in the shape of today;
// keys, labels and owners of others stay.
func TestPlanUpgrade(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.held.ConfigMap.Data = map[string]string{"values": oldConfigMap, "theirs": "x"}
	w.held.Secret.Data = map[string][]byte{"values": []byte(oldSecret)}
	w.held.Secret.Labels["theirs"] = "x"
	if got, want := w.values(), (proxyconfig.Config{HTTPProxy: proxy, HTTPSProxy: proxy, NoProxy: golden}); got != want {
		t.Errorf("got %v of the old objects, want %v", got, want)
	}
	names, err := w.settle()
	if want := []string{"update Secret org/one-cluster-values", "update ConfigMap org/one-cluster-values"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %v, %v, want %v", names, err, want)
	}
	if !w.got().equal(everywhere(proxy, golden)) || w.held.ConfigMap.Data["theirs"] != "x" || w.held.Secret.Labels["theirs"] != "x" {
		t.Errorf("got %v, %v", w.got(), w.held.ConfigMap.Data)
	}
	if text := w.held.ConfigMap.Data["values"]; !strings.HasPrefix(text, "cluster:\n  calico:") || strings.Contains(text, "\nproxy:") {
		t.Errorf("got\n%s\nwant all of it below cluster:", text)
	}
	w.config.Layout = proxyconfig.LayoutRFC
	if names, err := w.settle(); err != nil || len(names) != 2 || w.held.ConfigMap.Data["values"] != oldConfigMap {
		t.Errorf("got %v, %v and\n%s\nwant the RFC's", names, err, w.held.ConfigMap.Data["values"])
	}
}

// Names of one's own: what another operator has under the usual ones stays.
func TestPlanValuesName(t *testing.T) {
	w := newWorld(t)
	w.config.ValuesName, w.config.SystemdName = "proxy-values", "my-systemd"
	want := []string{"create Secret org/one-my-systemd", "create Secret org/one-proxy-values", "create ConfigMap org/one-proxy-values"}
	action, err := w.plan()
	var names []string
	for _, o := range action.Writes {
		names = append(names, "create "+o.String())
	}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("got %v, %v, want %v", names, err, want)
	}
	for c, want := range map[*propagate.Config][2]string{&w.config: {"-proxy-values", "-my-systemd"}, {}: {"-cluster-values", "-systemd-proxy"}} {
		if values, systemd := c.Suffixes(); values != want[0] || systemd != want[1] {
			t.Errorf("got %s and %s, want %v", values, systemd, want)
		}
	}
	for field, c := range map[string]propagate.Config{
		"ValuesName": {ValuesName: "systemd-proxy"}, "SystemdName": {SystemdName: "a_b"}, "Layout": {Layout: 7}, "EnvSecret": {EnvSecret: "A B"}, "Credentials": {Credentials: 9},
	} {
		c.Installation = "a/b"
		if err := c.Check(); err == nil || !strings.HasPrefix(err.Error(), "propagate: Config."+field+": ") {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

// What has no effect is told of, and the rest is written.
func TestPlanTellsWhatIsIgnored(t *testing.T) {
	for _, tt := range []struct {
		name         string
		change       func(*world)
		reason, text string
	}{
		{"nothing", func(*world) {}, "", ""},
		{"an override without its label", func(w *world) { w.held.Unlabelled = true }, propagate.ReasonOverride,
			"kubectl -n org label secret one-proxy-override " + propagate.LabelOverride + "="},
		{"https only", func(w *world) { w.installation("HTTPS_PROXY", proxy) }, propagate.ReasonIncomplete, "chart-operator takes none"},
		{"https only, the RFC's layout", func(w *world) {
			w.config.Layout = proxyconfig.LayoutRFC
			w.installation("HTTPS_PROXY", proxy)
		}, "", ""},
		{"direct", func(w *world) { w.override("direct", "true") }, "", ""},
		{"values of chart cluster", func(w *world) {
			w.override("values", "global: {connectivity: {proxy: {enabled: true, httpProxy: '"+other+"', httpsProxy: '"+other+"'}}}")
		}, "", ""},
		{"chart cluster's proxy is off", func(w *world) { w.override("values", "global: {connectivity: {proxy: {enabled: false}}}") }, "", ""},
		{"values that set nothing", func(w *world) { w.override("values", "global: {proxy: {httpProxy: '"+other+"'}}") }, propagate.ReasonOverride,
			"Secret org/one-proxy-override: key values: sets nothing"},
		{"an indentation slip", func(w *world) { w.override("values", "cluster:\n  proxy:\n  http: "+other+"\n") }, propagate.ReasonOverride, "sets nothing"},
		{"a section that is empty", func(w *world) { w.override("values", "proxy: {http: ''}") }, propagate.ReasonOverride, "sets nothing"},
		{"values that set nothing, and a list", func(w *world) { w.override("NO_PROXY", "a.test", "values", "clusters: {proxy: {http: '"+other+"'}}") },
			propagate.ReasonOverride, "sets nothing"},
		{"no values", func(w *world) { w.override("values", "# none yet\n") }, propagate.ReasonOverride, "sets nothing"},
		{"no networks of Services", func(w *world) { w.cluster.Facts.ServiceCIDRs = nil }, propagate.ReasonIncomplete,
			"Cluster org/one has no spec.clusterNetwork.services: kubeadm's default 10.96.0.0/12 is taken"},
		{"no networks of pods", func(w *world) { w.cluster.Facts.PodCIDRs = nil }, propagate.ReasonIncomplete,
			"Cluster org/one has no spec.clusterNetwork.pods"},
		{"a list with spaces", func(w *world) { w.override("NO_PROXY", "a.test b.test") }, propagate.ReasonIncomplete, `"a.test b.test"`},
	} {
		w := newWorld(t)
		tt.change(w)
		action, err := w.plan()
		if err != nil || len(action.Writes) != 3 {
			t.Errorf("%s: got %v, %v, want all three written", tt.name, action.Writes, err)
		}
		reason, text := "", ""
		for _, e := range action.Events {
			reason, text = reason+e.Reason, text+e.Message
		}
		if reason != tt.reason || !strings.Contains(text, tt.text) {
			t.Errorf("%s: got the Event %q %q, want %q %q", tt.name, reason, text, tt.reason, tt.text)
		}
	}
}

// Values are taken as files have them.
func TestInstallationOfFiles(t *testing.T) {
	installation := source("system", "proxy", []string{"HTTP_PROXY", proxy + "\n", "HTTPS_PROXY", proxy + "\n"})
	c, err := propagate.Config{Installation: "system/proxy"}.ReadInstallation(installation)
	if err != nil || c.HTTPProxy != proxy {
		t.Errorf("got %v, %v, want the URL without the line's end", c, err)
	}
}

// The Secret for pods is written from the latest version of its source, and keeps what
// others have put into it.
func TestPlanEnv(t *testing.T) {
	want := propagate.EnvSecret{Namespace: "web", Name: "proxy", Source: "uid", Version: "9", Config: proxyconfig.Config{HTTPProxy: proxy, NoProxy: "a.test"}}
	action, err := propagate.PlanEnv(want, nil, propagate.Config{})
	if err != nil || len(action.Writes) != 1 {
		t.Fatalf("got %v, %v, want a Secret", action, err)
	}
	made := action.Writes[0].Secret
	if string(made.Data["HTTP_PROXY"]) != proxy || made.Annotations[propagate.AnnotationSource] != "uid/9" {
		t.Errorf("got %v", made)
	}
	for _, tt := range []struct {
		name   string
		change func(*corev1.Secret, *propagate.EnvSecret)
		writes int
	}{
		{"nothing", func(*corev1.Secret, *propagate.EnvSecret) {}, 0},
		{"another URL", func(_ *corev1.Secret, want *propagate.EnvSecret) { want.Config.HTTPProxy, want.Version = other, "10" }, 1},
		{"an older version of the source", func(_ *corev1.Secret, want *propagate.EnvSecret) { want.Config.HTTPProxy, want.Version = other, "8" }, 0},
		{"another source", func(_ *corev1.Secret, want *propagate.EnvSecret) {
			want.Config.HTTPProxy, want.Version, want.Source = other, "8", "new"
		}, 1},
		{"an edit", func(held *corev1.Secret, _ *propagate.EnvSecret) { delete(held.Data, "NO_PROXY") }, 1},
		{"no proxy any more", func(_ *corev1.Secret, want *propagate.EnvSecret) { want.Config.HTTPProxy = "" }, 1},
		{"a key of others", func(held *corev1.Secret, _ *propagate.EnvSecret) { held.Data["x"] = nil }, 0},
		{"another's", func(held *corev1.Secret, want *propagate.EnvSecret) { held.Labels, want.Config.HTTPProxy = nil, other }, 0},
	} {
		held, next := made.DeepCopy(), want
		tt.change(held, &next)
		action, err := propagate.PlanEnv(next, held, propagate.Config{})
		if len(action.Writes) != tt.writes || (err != nil) != (tt.name == "another's") {
			t.Errorf("%s: got %v, %v, want %d writes", tt.name, action.Writes, err, tt.writes)
		}
		if len(action.Writes) == 1 {
			if got, ok := action.Writes[0].Secret.Data["HTTP_PROXY"]; !ok || string(got) != next.Config.HTTPProxy {
				t.Errorf("%s: got %q (%v), want a key with %q, as pods refer to it", tt.name, got, ok, next.Config.HTTPProxy)
			}
			if again, _ := propagate.PlanEnv(next, action.Writes[0].Secret, propagate.Config{}); len(again.Writes) > 0 {
				t.Errorf("%s: got another write", tt.name)
			}
		}
	}
}
