// Package metrics is counters and gauges in Prometheus' text format: enough for
// examples, and for programs that want no more modules. tunnel/prometheus/provider
// makes a provider's metrics, and histograms, with Prometheus' own library.
package metrics

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Metrics serves what it counted. Make one by [New]. Its methods are safe for
// concurrent use.
type Metrics struct {
	prefix string

	mu     sync.Mutex // guards the fields below
	values map[string]int
	kinds  map[string]string // by name
}

// New returns Metrics whose names start with prefix.
func New(prefix string) *Metrics {
	return &Metrics{prefix: prefix, values: map[string]int{}, kinds: map[string]string{}}
}

// Add counts one. labels are names and values.
func (m *Metrics) Add(name string, labels ...string) {
	var pairs []string
	for pair := range slices.Chunk(labels, 2) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", pair[0], pair[1]))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kinds[name] = "counter"
	m.values[name+"{"+strings.Join(pairs, ",")+"}"]++
}

// Set sets a gauge.
func (m *Metrics) Set(name string, value int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kinds[name] = "gauge"
	m.values[name] = value
}

// ServeHTTP writes them all.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	values, kinds := maps.Clone(m.values), maps.Clone(m.kinds)
	m.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	last := ""
	for _, series := range slices.Sorted(maps.Keys(values)) {
		if name, _, _ := strings.Cut(series, "{"); name != last {
			fmt.Fprintf(w, "# TYPE %s%s %s\n", m.prefix, name, kinds[name])
			last = name
		}
		fmt.Fprintf(w, "%s%s %d\n", m.prefix, series, values[series])
	}
}
