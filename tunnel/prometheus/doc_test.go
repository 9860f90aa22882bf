package prometheus_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// updateEnv, set to 1, writes metrics.md.
const updateEnv = "CAUSEWAY_UPDATE"

// metrics.md says what the collectors say.
func TestMetricsFile(t *testing.T) {
	families, err := registryOf(t, everything()...).Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := page(families)
	if os.Getenv(updateEnv) == "1" {
		if err := os.WriteFile("metrics.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("metrics.md is not what the collectors say: %s=1 go test -run TestMetricsFile . writes it", updateEnv)
	}
}

const preface = `# Metrics

The package's tests write this file from the descriptions of the collectors.

Each program of [examples/programs](../../examples/programs) serves its own at /metrics, beside
those of its Go process ([how](../../docs/operators.md#metrics-and-alerts)).

The alert rules ([alerts.yaml](alerts.yaml)) and the dashboard for Grafana
([dashboard.json](dashboard.json)) use only these metrics and labels, which tests
check. promtool checks both, and runs the rules' own tests ([testdata](testdata)).
Grafana's dashboard-linter checks the dashboard
([its test](../../internal/dashboardlint)), except for what [.lint](.lint) names.
`

func page(families []*dto.MetricFamily) string {
	var b strings.Builder
	b.WriteString(preface)
	for _, part := range []struct{ prefix, title string }{
		{"causeway_tunnel_", "Server"},
		{"causeway_agent_", "Agent"},
		{"causeway_gateway_", "Gateway, with a label listener in the program"},
		{"causeway_injector_", "Injector"},
		{"causeway_certificate_|causeway_token_|causeway_limit_", "Certificates, tokens and limits of the programs"},
		{"causeway_provider_", "Provider"},
		{"causeway_propagate_", "Propagator"},
		{"causeway_managed_", "Server with --clusters"},
		{"controller_runtime_|workqueue_|leader_", "Provider, propagator, injector and server with --clusters"},
	} {
		named := regexp.MustCompile("^(" + part.prefix + ")")
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | |\n| --- | --- | --- | --- |\n", part.title)
		for _, f := range families {
			if named.MatchString(f.GetName()) {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), labelNames(f), f.GetHelp())
			}
		}
	}
	return b.String()
}

func labelNames(f *dto.MetricFamily) string {
	var names []string
	for _, l := range f.Metric[0].Label {
		names = append(names, "`"+l.GetName()+"`")
	}
	return strings.Join(names, ", ")
}
