package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const monitoring = "components/monitoring/"

// updateEnv, set to 1, writes rules.yaml.
const updateEnv = "CAUSEWAY_UPDATE"

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const rulesHead = `# The alerts of tunnel/prometheus/alerts.yaml. A test writes this file.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: causeway
  namespace: causeway-monitoring
spec:
`

// The rules are those that promtool tests.
func TestMonitoringRules(t *testing.T) {
	_, groups, ok := strings.Cut(readText(t, "../../tunnel/prometheus/alerts.yaml"), "\ngroups:\n")
	if !ok {
		t.Fatal("alerts.yaml has no groups")
	}
	var want strings.Builder
	want.WriteString(rulesHead + "  groups:\n")
	for line := range strings.Lines(groups) {
		want.WriteString("  " + line)
	}
	if os.Getenv(updateEnv) == "1" {
		if err := os.WriteFile(monitoring+"rules.yaml", []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want.String(), readText(t, monitoring+"rules.yaml")); diff != "" {
		t.Errorf("rules.yaml is not alerts.yaml (-want +got): %s=1 go test -run TestMonitoringRules . writes it\n%s", updateEnv, diff)
	}
}

// podMonitor is what the test reads of one; internal/e2e reads them by the operator's own types.
type podMonitor struct {
	Metadata struct{ Name string }
	Spec     struct {
		NamespaceSelector   struct{ MatchNames []string }
		Selector            struct{ MatchLabels map[string]string }
		PodMetricsEndpoints []struct{ Port string }
	}
}

// Each base has a PodMonitor that leads to the port with its probes, and a NetworkPolicy that
// lets the scraper in there, and nowhere else.
func TestMonitors(t *testing.T) {
	monitors := map[string]podMonitor{}
	for text := range strings.SplitSeq(readText(t, monitoring+"monitors.yaml"), "\n---\n") {
		var m podMonitor
		if err := yaml.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		monitors[m.Metadata.Name] = m
	}
	added := scraperRules(t)
	for _, b := range bases(t) {
		m := monitors[b.name]
		delete(monitors, b.name)
		if !slices.Equal(m.Spec.NamespaceSelector.MatchNames, []string{b.name}) || len(m.Spec.Selector.MatchLabels) == 0 ||
			!labels.SelectorFromSet(m.Spec.Selector.MatchLabels).Matches(labels.Set(b.template.Labels)) || len(m.Spec.PodMetricsEndpoints) != 1 {
			t.Errorf("%s: got the monitor %+v", b.name, m)
			continue
		}
		port := m.Spec.PodMetricsEndpoints[0].Port
		if b.container().LivenessProbe.HTTPGet.Port.StrVal != port {
			t.Errorf("%s: got port %q, want that of the probes", b.name, port)
		}
		if !slices.ContainsFunc(b.container().Ports, func(p corev1.ContainerPort) bool { return p.Name == port }) {
			t.Errorf("%s: no container has the port %q", b.name, port)
		}
		rules := slices.Clone(added[b.name])
		for _, p := range of[*networkingv1.NetworkPolicy](b) {
			rules = append(rules, p.Spec.Ingress...)
		}
		open := slices.DeleteFunc(rules, func(r networkingv1.NetworkPolicyIngressRule) bool { return r.Ports[0].Port.StrVal != port })
		if len(open) != 1 || len(open[0].Ports) != 1 || len(open[0].From) != 1 ||
			!cmp.Equal(open[0].From[0].NamespaceSelector.MatchLabels, map[string]string{"causewayproject.github.io/metrics-client": "true"}) {
			t.Errorf("%s: got the rules %+v for port %q, want one for the scraper's namespace", b.name, open, port)
		}
	}
	if len(monitors) > 0 {
		t.Errorf("got monitors of no base: %+v", monitors)
	}
}

// scraperRules are the rules that the component adds to NetworkPolicies, by name.
func scraperRules(t *testing.T) map[string][]networkingv1.NetworkPolicyIngressRule {
	t.Helper()
	var component struct {
		Resources []string
		Patches   []struct {
			Target struct{ Kind, Name string }
			Patch  string
		}
	}
	if err := yaml.Unmarshal([]byte(readText(t, monitoring+"kustomization.yaml")), &component); err != nil {
		t.Fatal(err)
	}
	if files, err := filepath.Glob(monitoring + "*.yaml"); err != nil || len(files) != len(component.Resources)+1 {
		t.Errorf("got the resources %q of the files %q, %v", component.Resources, files, err)
	}
	rules := map[string][]networkingv1.NetworkPolicyIngressRule{}
	for _, p := range component.Patches {
		var patch []struct {
			Op, Path string
			Value    any
		}
		if err := yaml.UnmarshalStrict([]byte(p.Patch), &patch); err != nil || len(patch) != 1 || patch[0].Op != "add" || p.Target.Kind != "NetworkPolicy" {
			t.Fatalf("got %+v, %v", p, err)
		}
		value, list := patch[0].Value, []networkingv1.NetworkPolicyIngressRule{}
		if patch[0].Path == "/spec/ingress/-" {
			value = []any{value}
		}
		text, err := yaml.Marshal(value)
		if err == nil {
			err = yaml.UnmarshalStrict(text, &list)
		}
		if err != nil {
			t.Fatal(err)
		}
		rules[p.Target.Name] = list
	}
	return rules
}
