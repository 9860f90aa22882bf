package prometheus_test

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Record, Alert, Expr, For string
			Labels, Annotations      map[string]string
		}
	}
}

type ruleTests struct {
	Tests []struct {
		Name        string
		Expressions []struct {
			Expr    string
			Samples []any `yaml:"exp_samples"`
		} `yaml:"promql_expr_test"`
	}
}

func readYAML(t *testing.T, name string, v any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil {
		err = yaml.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Each alert says what is the matter and what to do, of metrics that there are,
// and has a test in which it fires and one in which it must not.
func TestAlerts(t *testing.T) {
	var (
		rules ruleFile
		tests ruleTests
		texts = map[bool]string{} // of expressions, by whether something is expected
	)
	readYAML(t, "alerts.yaml", &rules)
	readYAML(t, "testdata/alerts.yaml", &tests)
	for _, test := range tests.Tests {
		for _, e := range test.Expressions {
			texts[len(e.Samples) > 0] += e.Expr + "\n"
			if strings.Contains(e.Expr, `job="p", alertstate`) { // of several alerts
				for _, s := range e.Samples {
					texts[true] += s.(map[string]any)["labels"].(string)
				}
			}
		}
	}
	v, recorded, n := vocabularyOf(t), []string{}, 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				recorded = append(recorded, r.Record, "causeway_tunnel_cluster_sessions")
			}
			v.check(t, r.Record+r.Alert, strings.NewReplacer(recorded...).Replace(r.Expr))
			if r.Alert == "" {
				continue
			}
			n++
			for what, text := range map[string]string{
				"severity": r.Labels["severity"], "for": r.For, "summary": r.Annotations["summary"],
				"description": r.Annotations["description"], "action": r.Annotations["action"],
			} {
				if text == "" {
					t.Errorf("%s has no %s", r.Alert, what)
				}
			}
			for fires, word := range map[bool]string{true: "fires", false: "must not fire"} {
				if !strings.Contains(texts[fires], r.Alert) {
					t.Errorf("%s has no test in which it %s", r.Alert, word)
				}
			}
		}
	}
	if n == 0 {
		t.Error("there is no alert")
	}
}

func TestAlertsByPromtool(t *testing.T) {
	promtool(t, nil, "check", "rules", "alerts.yaml")
	promtool(t, nil, "test", "rules", "testdata/alerts.yaml")
}
