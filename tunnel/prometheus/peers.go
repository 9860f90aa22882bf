package prometheus

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/causewayproject/causeway/tunnel/prometheus/internal/family"
)

// peers are the families of other replicas. Their names are not labels: a
// replica gets a new one each time it starts.
type peers struct {
	gone, forwards *prometheus.CounterVec
	took           *prometheus.HistogramVec

	mu   *sync.Mutex    // guards the field below
	held map[string]int // sessions by name
}

func newPeers(native bool) peers {
	p := peers{
		gone: peersDisconnected.Counters(), forwards: forwards.Counters(), took: forwardDuration.Histograms(native),
		mu: new(sync.Mutex), held: map[string]int{},
	}
	p.gone.WithLabelValues(codeOK)
	p.forwards.WithLabelValues(codeOK)
	for _, result := range []string{"ok", "error"} {
		p.took.WithLabelValues(result)
	}
	return p
}

func (p *peers) connected(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[name]++
}

func (p *peers) disconnected(name string, err error) {
	p.gone.WithLabelValues(endOf(err)).Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[name]--; p.held[name] <= 0 {
		delete(p.held, name)
	}
}

func (p *peers) forwarded(_ string, took time.Duration, err error) {
	p.forwards.WithLabelValues(codeOf(err)).Inc()
	p.took.WithLabelValues(family.Result(err)).Observe(took.Seconds())
}

func (p *peers) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

func (p *peers) Collect(ch chan<- prometheus.Metric) {
	p.gone.Collect(ch)
	p.forwards.Collect(ch)
	p.took.Collect(ch)
	send(ch, peersConnected, float64(p.count()))
}
