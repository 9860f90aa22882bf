package proxyconfig_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/proxyconfig"
)

const (
	canary  = "Canary7f3aSecret"
	encoded = "Canary7f3a%53ecret" // as a URL may have it
)

func leaks(text string) bool {
	for i := range 3 { // in base64 it depends on what is in front of it
		if strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(canary[i:i+12]))) {
			return true
		}
	}
	text = strings.ToLower(text)
	return strings.Contains(text, strings.ToLower(canary)) || strings.Contains(text, strings.ToLower(encoded)) ||
		strings.Contains(text, strings.ToLower(fmt.Sprintf("%x", canary)))
}

// Bug: credentials in a debug log.
func TestNothingPrintsTheCredentials(t *testing.T) {
	c := config("http://user:" + encoded + "@proxy:3128")
	c.HTTPSProxy = "http://user:" + canary + "@x@proxy:3128" // not valid
	layers := proxyconfig.Layers{Installation: config("http://user:" + encoded + "@proxy:3128"), User: proxyconfig.Override{Config: config("http://" + canary + "@proxy:1")}}
	merged := must(layers.Merge())(t)
	objects := must(proxyconfig.ClusterValues{Name: "a", Namespace: "b", Config: merged.Config}.Build())(t)
	for name, value := range map[string]any{
		"Config": c, "*Config": &c, "Layers": layers, "*Layers": &layers, "Override": layers.User, "Merged": *merged, "*Merged": merged,
		"ClusterValues": proxyconfig.ClusterValues{Config: c}, "Kubeadm": proxyconfig.Kubeadm{Config: c}, "ClusterObjects": *objects, "*ClusterObjects": objects, "Validate": c.Validate(),
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			if text := fmt.Sprintf(verb, value); leaks(text) {
				t.Errorf("%s with %s: %s", name, verb, text)
			}
		}
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "value", value)
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "value", value)
		if leaks(log.String()) {
			t.Errorf("%s logged: %s", name, &log)
		}
	}
}

// The password is in the Secrets and in what is asked for in plain, and nowhere
// else.
func TestWhereTheCanaryIs(t *testing.T) {
	c := config("http://user:" + canary + "@proxy:3128")
	o := must(proxyconfig.ClusterValues{Name: "a", Namespace: "b", Config: c}.Build())(t)
	_, findings, err := c.JVMProperties()
	spec := func(way proxyconfig.StaticPods) any {
		return must(proxyconfig.Kubeadm{Secret: "a", StaticPods: way, Config: c}.Build())(t)
	}
	for _, w := range []struct {
		what  string
		value any
		want  bool
	}{
		{"ConfigMap", o.ConfigMap, false},
		{"Secret", string(o.Secret.Data["values"]), true},
		{"systemd Secret", string(o.SystemdProxy.Data["containerdProxy"]), true},
		{"metadata", []any{o.Secret.ObjectMeta, o.SystemdProxy.ObjectMeta}, false},
		{"kubeadm's script", string(o.SystemdProxy.Data["kubeadmProxy"]), true},
		{"kubeadm's patch", string(o.SystemdProxy.Data["etcd-patch"]), true},
		{"kubeadm", spec(proxyconfig.StaticPodsNone), false},
		{"kubeadm, environment", spec(proxyconfig.StaticPodsEnvironment), false},
		{"kubeadm, patches", spec(proxyconfig.StaticPodsPatches), false},
		{"kubeadm, extraEnvs", spec(proxyconfig.StaticPodsExtraEnvs), false},
		{"kubeadm, extraEnvs as asked for", spec(proxyconfig.StaticPodsExtraEnvsWithCredentials), true},
		{"findings about static pods", (&proxyconfig.Merged{Config: c}).LintStaticPods(proxyconfig.StaticPodsExtraEnvs), false},
		{"EnvVars", c.EnvVars(), true},
		{"EnvVarsFrom", c.EnvVarsFrom("x", false), false},
		{"WithoutCredentials", c.WithoutCredentials().EnvVars(), false},
		{"Redacted", c.Redacted().EnvVars(), false},
		{"Lint", c.Lint(), false},
		{"JVM findings", must(findings, err)(t), false},
		{"provenance", must(proxyconfig.Layers{Installation: c}.Merge())(t).List, false},
		{"EnvSecretData", strings.Join(slices.Collect(maps.Keys(c.EnvSecretData())), " "), false},
		{"DockerConfig", must(c.DockerConfig())(t), true},
	} {
		asJSON, asYAML := must(json.Marshal(w.value))(t), must(yaml.Marshal(w.value))(t)
		if got := leaks(string(asJSON)) || leaks(string(asYAML)); got != w.want {
			t.Errorf("%s: got the password %t, want %t:\n%s", w.what, got, w.want, asYAML)
		}
	}
}
