package controllers_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/causewayproject/causeway/controllers"
)

// TestMetrics: the metrics that metrics.md lists of the reconcilers are there, with their
// labels.
func TestMetrics(t *testing.T) {
	b := newBed(t)
	elect(b)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	stop := b.run(t)
	b.Until(t, "the condition", func() bool { return b.Wrote("PATCH clusters") == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := controllers.RegisterMetrics(); err != nil {
		t.Fatal(err)
	}
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, f := range families {
		found[f.GetName()] = nil
		for _, label := range f.Metric[0].Label {
			found[f.GetName()] = append(found[f.GetName()], label.GetName())
		}
	}
	text, err := os.ReadFile("../tunnel/prometheus/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Provider")
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\w+ \\| (.*?) \\|").FindAllStringSubmatch(section, -1)
	if len(rows) < 12 {
		t.Fatalf("got %d metrics in metrics.md, want more", len(rows))
	}
	for _, row := range rows {
		if _, ok := found[row[1]]; !ok {
			t.Errorf("there is no %s", row[1])
		}
		for _, label := range strings.FieldsFunc(row[2], func(r rune) bool { return r == ',' || r == ' ' }) {
			if !slices.Contains(found[row[1]], strings.Trim(label, "`")) {
				t.Errorf("%s has the labels %q, want %s", row[1], found[row[1]], label)
			}
		}
	}
}
