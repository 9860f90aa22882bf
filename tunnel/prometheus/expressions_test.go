package prometheus_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// vocabulary is what an expression may speak of: the metrics, and the labels
// of each beside those that a scrape adds.
type vocabulary map[string][]string

func vocabularyOf(t *testing.T) vocabulary {
	t.Helper()
	families, err := registryOf(t, everything()...).Gather()
	if err != nil {
		t.Fatal(err)
	}
	v := vocabulary{}
	for _, f := range families {
		labels := []string{"job", "instance"}
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			v[f.GetName()+"_bucket"] = append(labels, "le")
			v[f.GetName()+"_sum"], v[f.GetName()+"_count"] = labels, labels
		} else {
			v[f.GetName()] = labels
		}
	}
	return v
}

var (
	metricName = regexp.MustCompile(`\b((?:causeway|controller_runtime|workqueue|leader_election)_\w+)(?:\{([^}]*)\})?`)
	matcher    = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	grouping   = regexp.MustCompile(`\b(?:by|on|without)\s*\(([^)]*)\)`)
)

// check says what the expression speaks of that is not there: such a panel
// would be empty for ever, such an alert silent. It returns the metrics.
func (v vocabulary) check(t *testing.T, where, expr string) (names []string) {
	t.Helper()
	var all []string
	for _, m := range metricName.FindAllStringSubmatch(expr, -1) {
		labels, ok := v[m[1]]
		if !ok {
			t.Errorf("%s: there is no metric %s", where, m[1])
		}
		for _, label := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, label[1]) {
				t.Errorf("%s: %s has no label %s", where, m[1], label[1])
			}
		}
		names, all = append(names, m[1]), append(all, labels...)
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for _, label := range strings.Split(g[1], ",") {
			if !slices.Contains(all, strings.TrimSpace(label)) {
				t.Errorf("%s: no metric of it has the label %q", where, label)
			}
		}
	}
	if len(names) == 0 {
		t.Errorf("%s speaks of no metric: %s", where, expr)
	}
	return names
}
