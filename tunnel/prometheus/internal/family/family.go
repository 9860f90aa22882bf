// Package family says what a metric family is called and means, in one place
// for the collector, the documentation and the tests.
package family

import "github.com/prometheus/client_golang/prometheus"

// Kind is the type of a family, in the words of the exposition format.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Family is a metric family: a name and what it means.
type Family struct {
	Name   string
	Kind   Kind
	Help   string
	Labels []string
	// Buckets are those of a Histogram, in seconds.
	Buckets []float64
}

// Desc describes the family to client_golang.
func (f Family) Desc() *prometheus.Desc {
	return prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
}

// Vectors makes the vectors of a collector, and collects them. A family without
// labels has its series from the beginning, and one with a label those of the initial
// values: a rate over a series that begins at 1 would miss its first event.
type Vectors struct {
	all []prometheus.Collector
}

// Counter returns a vector of counters.
func (v *Vectors) Counter(f Family, initial ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
	begin(v, f, vec, vec.WithLabelValues, initial)
	return vec
}

// Histogram returns a vector of histograms.
func (v *Vectors) Histogram(f Family, initial ...string) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets}, f.Labels)
	begin(v, f, vec, vec.WithLabelValues, initial)
	return vec
}

func begin[M any](v *Vectors, f Family, vec prometheus.Collector, series func(...string) M, initial []string) {
	v.all = append(v.all, vec)
	if len(f.Labels) == 0 {
		series()
	}
	for _, value := range initial {
		series(value)
	}
}

// Collect collects all vectors.
func (v *Vectors) Collect(ch chan<- prometheus.Metric) {
	for _, c := range v.all {
		c.Collect(ch)
	}
}

// Describe sends the description of each family.
func Describe(families []Family, ch chan<- *prometheus.Desc) {
	for _, f := range families {
		ch <- f.Desc()
	}
}

// Results are the values of a label result.
var Results = []string{"ok", "error"}

// Result is the value of a label result.
func Result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// Chain returns a hook that calls first, and then next unless it is nil.
func Chain[A any](first, next func(A)) func(A) {
	if next == nil {
		return first
	}
	return func(a A) {
		first(a)
		next(a)
	}
}

// Chain2 is Chain for hooks that are told two things.
func Chain2[A, B any](first, next func(A, B)) func(A, B) {
	if next == nil {
		return first
	}
	return func(a A, b B) {
		first(a, b)
		next(a, b)
	}
}

// Chain3 is Chain for hooks that are told three things.
func Chain3[A, B, C any](first, next func(A, B, C)) func(A, B, C) {
	if next == nil {
		return first
	}
	return func(a A, b B, c C) {
		first(a, b, c)
		next(a, b, c)
	}
}
