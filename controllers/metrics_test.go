package controllers_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// TestMetrics: the metrics of the provider that alerts and the dashboard use are there,
// with their labels.
func TestMetrics(t *testing.T) {
	b := newBed(t)
	elect(b)
	b.Set("clusters", cluster("a", "one", route("p1:1")))
	stop := b.run(t)
	b.Until(t, "the condition", func() bool { return b.Wrote("PATCH clusters") == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, f := range families {
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
	if len(rows) < 5 {
		t.Fatalf("got %d metrics in metrics.md, want more", len(rows))
	}
	for _, row := range rows {
		for _, label := range strings.Split(row[2], ", ") {
			if !slices.Contains(found[row[1]], strings.Trim(label, "`")) {
				t.Errorf("%s has the labels %q, want %s", row[1], found[row[1]], label)
			}
		}
	}
}
