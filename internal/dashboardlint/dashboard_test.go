// Package dashboardlint runs Grafana's own linter over the dashboard. It is a
// module of its own, since the linter comes with Loki's parser and what that
// needs. Go keeps a result although the dashboard has changed, since the file
// is not the module's: run it with -count=1, as .ci/lint does.
package dashboardlint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/grafana/dashboard-linter/lint"
)

const folder = "../../tunnel/prometheus"

// findings are what the linter says of the dashboard, warnings included.
func findings(t *testing.T) []lint.ResultContext {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	dashboard, err := lint.NewDashboard(data)
	if err != nil {
		t.Fatal(err)
	}
	rules := lint.NewRuleSet()
	results, err := rules.Lint([]lint.Dashboard{dashboard})
	if err != nil {
		t.Fatal(err)
	}
	var found []lint.ResultContext
	byRule := results.ByRule()
	for _, rule := range rules.Rules() {
		if len(byRule[rule.Name()]) == 0 {
			t.Errorf("rule %s has looked at nothing", rule.Name())
		}
		for _, place := range byRule[rule.Name()] {
			for _, r := range place.Result.Results {
				if r.Severity >= lint.Warning {
					place.Result.Results = []lint.FixableResult{r}
					found = append(found, place)
				}
			}
		}
	}
	return found
}

// place is where a rule may find something.
type place struct{ rule, panel string }

// excluded are the places that .lint names; the linter itself looks there, too.
func excluded(t *testing.T) map[place]bool {
	t.Helper()
	config := lint.NewConfigurationFile()
	if err := config.Load(filepath.Join(folder, ".lint")); err != nil {
		t.Fatal(err)
	}
	places := map[place]bool{}
	for rule, e := range config.Exclusions {
		if e == nil || e.Reason == "" || len(e.Entries) == 0 {
			t.Fatalf(".lint: %s: want a reason, and panels", rule)
		}
		for _, entry := range e.Entries {
			if entry.Panel == "" {
				t.Fatalf(".lint: %s: an entry without a panel leaves out all", rule)
			}
			places[place{rule, entry.Panel}] = true
		}
	}
	return places
}

// Each finding is a failure but for those of .lint, and they are still found.
func TestDashboard(t *testing.T) {
	excluded := excluded(t)
	met := map[place]bool{}
	for _, f := range findings(t) {
		at := place{rule: f.Rule.Name()}
		if f.Panel != nil {
			at.panel = f.Panel.Title
		}
		met[at] = true
		if !excluded[at] {
			t.Errorf("%s: %s", at.rule, f.Result.Results[0].Message)
		}
	}
	for at := range excluded {
		if !met[at] {
			t.Errorf(".lint: %s finds nothing in the panel %q: take it out", at.rule, at.panel)
		}
	}
}
