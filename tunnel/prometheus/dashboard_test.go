package prometheus_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               struct{ UID string }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Datasource                struct{ UID string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	data, err := os.ReadFile("dashboard.json")
	var d dashboard
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 10 || d.Title == "" || d.UID == "" || d.SchemaVersion == 0 {
		t.Fatalf("got %d panels, title %q, uid %q, schema %d: that is no dashboard", len(d.Panels), d.Title, d.UID, d.SchemaVersion)
	}
	return d
}

// Panels do not lie on each other, and have what makes them readable.
func TestDashboardPanels(t *testing.T) {
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: id %d is taken", p.Title, p.ID)
		}
		if titles[p.Title] {
			t.Errorf("there are two panels %q: descriptions and .lint name them by title", p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("%s: got position %+v, want within 24 columns", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		switch {
		case p.Title == "":
			t.Errorf("panel %d has no title", p.ID)
		case p.Type == "row":
		case len(p.Targets) == 0 || p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != "${datasource}":
			t.Errorf("%s: got %d queries, unit %q, source %q", p.Title, len(p.Targets), p.FieldConfig.Defaults.Unit, p.Datasource.UID)
		}
		for i, target := range p.Targets {
			if target.RefID != string(rune('A'+i)) || target.Datasource.UID != "${datasource}" {
				t.Errorf("%s: query %d is %s, of %s", p.Title, i, target.RefID, target.Datasource.UID)
			}
		}
	}
}

// queriesOf returns each query with values in the place of Grafana's variables.
func queriesOf(t *testing.T, d dashboard) map[string]string {
	t.Helper()
	queries := map[string]string{}
	vars := strings.NewReplacer("$__rate_interval", "5m", "$job", "server", "$instance", "server-0:9090", "$cluster", "default/prod")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			expr := vars.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: there is no such variable: %s", p.Title, expr)
			}
			queries[fmt.Sprintf("%s %d %s", p.Title, p.ID, target.RefID)] = expr
		}
	}
	return queries
}

// Each query is of metrics and labels that there are; promtool reads it, as
// the expression of a rule.
func TestDashboardQueries(t *testing.T) {
	type rule struct{ Record, Expr string }
	var rules []rule
	d, v := readDashboard(t), vocabularyOf(t)
	shown := map[string]bool{}
	for where, expr := range queriesOf(t, d) {
		for _, name := range v.check(t, where, expr) {
			shown[name] = true
		}
		rules = append(rules, rule{fmt.Sprintf("query:%d", len(rules)), expr})
	}
	for _, l := range d.Templating.List {
		if l.Type == "query" {
			v.check(t, "variable "+l.Name, strings.ReplaceAll(l.Definition, "$job", "server"))
		}
	}
	for part, want := range map[string]int{"causeway_tunnel_": 5, "causeway_agent_": 5, "causeway_gateway_": 5, "causeway_provider_": 3} {
		n := 0
		for name := range shown {
			if strings.HasPrefix(name, part) {
				n++
			}
		}
		if n < want {
			t.Errorf("got %d metrics %s* on the dashboard, want most", n, part)
		}
	}
	data, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	promtool(t, nil, "check", "rules", file)
}
