package server

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/causewayproject/causeway/examples/programs/internal/limits"
	"github.com/causewayproject/causeway/examples/programs/internal/metrics"
	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
	tunnelmetrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

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

func (m *serverMetrics) collectors() []prometheus.Collector {
	return append([]prometheus.Collector{m.tunnel, m.reviews, m.certificates, m.limiter.Refused, m.limiter.Waited}, m.gateways...)
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
