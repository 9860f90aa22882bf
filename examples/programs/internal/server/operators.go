package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/causewayproject/causeway/examples/programs/internal/limits"
	"github.com/causewayproject/causeway/examples/programs/internal/metrics"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
	tunnelmetrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

// doorRefusals are the strangers that the doors have refused, for the operators' page.
type doorRefusals struct {
	mu   sync.Mutex                 // guards the field below
	last map[string]tunnel.Refusals // by listener and phase; few
}

func (r *doorRefusals) record(door string, phase gateway.Phase, remote net.Addr, err error) {
	op := fmt.Sprintf("Client of --%s: %s", door, phase)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[op] = tunnel.Refusals{Op: op, Count: r.last[op].Count + 1, Last: time.Now(), Text: printable.Text(err.Error(), printable.Most), Remote: remote.String()}
}

// all returns the refusals, and forgets those that are older than a day.
func (r *doorRefusals) all() []tunnel.Refusals {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.last, func(_ string, one tunnel.Refusals) bool { return time.Since(one.Last) > 24*time.Hour })
	return slices.Collect(maps.Values(r.last))
}

// fleet returns what the page shows: what the replicas know, and whom the doors of this
// one have refused.
func (p *program) fleet(ctx context.Context) []tunnel.ReplicaStatus {
	all := p.server.Fleet(ctx)
	for i := range all {
		if all[i].Self {
			all[i].Status.Refusals = append(all[i].Status.Refusals, p.events.refusals.all()...)
		}
	}
	return all
}

// expiresSoon is when an operator should look at a certificate, as the alert has it.
const expiresSoon = 3 * 24 * time.Hour

// notes returns what is wrong with the certificates of the listeners.
func (p *program) notes() (notes []string) {
	for _, listener := range slices.Sorted(maps.Keys(p.metrics.certificates)) {
		pair, err := p.metrics.certificates[listener](nil)
		if err != nil {
			continue
		}
		switch until := pair.Leaf.NotAfter; {
		case time.Now().After(until):
			notes = append(notes, fmt.Sprintf("The certificate of --%s has expired, on %s: clients refuse it.", listener, until.UTC().Format("2 Jan 15:04 UTC")))
		case time.Until(until) < expiresSoon:
			notes = append(notes, fmt.Sprintf("The certificate of --%s expires on %s.", listener, until.UTC().Format("2 Jan 15:04 UTC")))
		}
	}
	return notes
}

// serverMetrics are the server's own metrics. It is complete when all listeners are open.
type serverMetrics struct {
	tunnel       *tunnelmetrics.Server
	gateways     []prometheus.Collector
	reviews      *prometheus.CounterVec
	certificates metrics.Certificates // of listeners with TLS, by flag
	limiter      *limits.Limiter
}

func newServerMetrics(server *tunnel.Server) *serverMetrics {
	return &serverMetrics{
		tunnel: &tunnelmetrics.Server{Status: server.Status},
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "causeway_token_reviews_total",
			Help: "Clients of doors whose token was looked at, by result: accepted, refused or unavailable (nobody could decide).",
		}, []string{"result"}),
		certificates: metrics.Certificates{},
		limiter:      limits.New(),
	}
}

// addGateway returns the metrics of a Gateway. Each has a listener of its own, whose name
// is a label.
func (m *serverMetrics) addGateway(listener string, status func() gateway.Status) *tunnelmetrics.Gateway {
	g := &tunnelmetrics.Gateway{Status: status}
	m.gateways = append(m.gateways, prometheus.WrapCollectorWith(prometheus.Labels{"listener": listener}, g))
	return g
}

// countReviews counts what next decides about tokens. It returns nil for nil.
func (m *serverMetrics) countReviews(next authenticator) authenticator {
	if next == nil {
		return nil
	}
	for _, result := range []string{"accepted", "refused", "unavailable"} {
		m.reviews.WithLabelValues(result)
	}
	return func(ctx context.Context, c gateway.Credentials) (gateway.Identity, error) {
		id, err := next(ctx, c)
		if c.Bearer+c.Password != "" {
			m.reviews.WithLabelValues(reviewResult(err)).Inc()
		}
		return id, err
	}
}

func reviewResult(err error) string {
	var u gateway.Unavailable
	switch {
	case err == nil:
		return "accepted"
	case errors.As(err, &u) && u.Unavailable():
		return "unavailable"
	}
	return "refused"
}
