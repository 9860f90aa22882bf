package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// The component monitoring goes with all bases, and with one of them. What it has for
// prometheus-operator has only fields that the operator knows.
func TestMonitoringComponent(t *testing.T) {
	t.Parallel()
	deploy, err := filepath.Abs("../../examples/deploy")
	if err != nil {
		t.Fatal(err)
	}
	for _, bases := range [][]string{{"tunnel-agent"}, {"tunnel-server", "tunnel-agent", "kubeconfig-provider", "proxy-propagator", "proxy-injector"}} {
		dir := t.TempDir()
		relative, err := filepath.Rel(dir, deploy)
		if err != nil {
			t.Fatal(err)
		}
		text := "resources:\n"
		for _, base := range bases {
			text += "- " + relative + "/" + base + "\n"
		}
		text += "components: [" + relative + "/components/monitoring]\n"
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		built, err := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(bed.BinEnv), "kubectl"), "kustomize", dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, built)
		}
		kinds := checkMonitoring(t, string(built))
		if kinds["PodMonitor"] != 5 || kinds["PrometheusRule"] != 1 {
			t.Errorf("%s: got %v", bases, kinds)
		}
		if got := strings.Count(string(built), `causewayproject.github.io/metrics-client: "true"`); got != len(bases) {
			t.Errorf("%s: got the scraper's label %d times, want it in each NetworkPolicy", bases, got)
		}
	}
}

// checkMonitoring reads the operator's objects strictly, and counts them by kind.
func checkMonitoring(t *testing.T, built string) map[string]int {
	t.Helper()
	kinds := map[string]int{}
	for document := range strings.SplitSeq(built, "\n---\n") {
		var head metav1.TypeMeta
		if err := sigsyaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		var object any
		switch head.Kind {
		case monitoringv1.PodMonitorsKind:
			object = new(monitoringv1.PodMonitor)
		case monitoringv1.PrometheusRuleKind:
			object = new(monitoringv1.PrometheusRule)
		default:
			continue
		}
		if err := sigsyaml.UnmarshalStrict([]byte(document), object); err != nil || head.APIVersion != monitoringv1.SchemeGroupVersion.String() {
			t.Errorf("%s %s: %v", head.APIVersion, head.Kind, err)
		}
		kinds[head.Kind]++
	}
	return kinds
}
