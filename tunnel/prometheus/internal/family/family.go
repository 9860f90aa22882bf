// Package family says what a metric family is called and means, in one place
// for the collector, the documentation and the tests.
package family

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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

// Quick are the buckets of what should take milliseconds, and is given up
// after some 30 seconds: 0.1 ms to 30 s.
func Quick() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
}

// Long are the buckets of what may last for days: 10 ms to a day.
func Long() []float64 {
	return []float64{.01, .1, 1, 10, 60, 300, 1800, 3600, 4 * 3600, 24 * 3600}
}

// Desc describes the family to client_golang.
func (f Family) Desc() *prometheus.Desc {
	return prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
}

// Counters returns a vector of counters.
func (f Family) Counters() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
}

// Gauges returns a vector of gauges.
func (f Family) Gauges() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.Labels)
}

// Histograms returns a vector of histograms; native adds a native histogram to
// the buckets, at most 160 of its own.
func (f Family) Histograms(native bool) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets}
	if native {
		opts.NativeHistogramBucketFactor = 1.1
		opts.NativeHistogramMaxBucketNumber = 160
		opts.NativeHistogramMinResetDuration = time.Hour
	}
	return prometheus.NewHistogramVec(opts, f.Labels)
}

// Describe sends the description of each family.
func Describe(families []Family, ch chan<- *prometheus.Desc) {
	for _, f := range families {
		ch <- f.Desc()
	}
}

// Result is the value of a label result.
func Result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
