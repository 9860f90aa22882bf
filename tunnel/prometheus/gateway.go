package prometheus

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
	"github.com/causewayproject/causeway/tunnel/prometheus/internal/family"
)

// Gateway collects the metrics of a [gateway.Gateway]. Its methods are safe for
// concurrent use; its fields must not change after the first call, and it must
// not be copied.
type Gateway struct {
	// Status is the Gateway's. Required; without it a scrape fails.
	Status func() gateway.Status

	once                  sync.Once
	vectors               family.Vectors
	failures, interrupted *prometheus.CounterVec
	dialTook, lasted      *prometheus.HistogramVec
}

var _ prometheus.Collector = (*Gateway)(nil)

func (m *Gateway) setup() {
	m.once.Do(func() {
		v := &m.vectors
		m.failures, m.interrupted = v.Counter(gatewayFailures), v.Counter(gatewayInterrupted)
		m.dialTook, m.lasted = v.Histogram(gatewayDialTook), v.Histogram(gatewayLasted)
	})
}

// Hooks returns hooks that count, and then call next's. They go into the
// Gateway before it serves.
func (m *Gateway) Hooks(next gateway.Hooks) gateway.Hooks {
	m.setup()
	next.Dialed = family.Chain3(func(r gateway.Request, took time.Duration, err error) {
		m.dialTook.WithLabelValues(doorOf(r.Door), family.Result(err)).Observe(took.Seconds())
	}, next.Dialed)
	next.Ended = family.Chain2(func(r gateway.Request, e gateway.Ended) {
		m.lasted.WithLabelValues(doorOf(r.Door)).Observe(e.Took.Seconds())
		if e.Err != nil {
			m.interrupted.WithLabelValues(doorOf(r.Door)).Inc()
		}
	}, next.Ended)
	next.Failed = family.Chain(func(err error) {
		e, ok := errors.AsType[*gateway.Error](err)
		if !ok {
			e = &gateway.Error{}
		}
		phase := oneOf(e.Phase, gateway.PhaseHandshake, gateway.PhaseLimit, gateway.PhaseAuthenticate, gateway.PhaseRoute, gateway.PhaseDial, gateway.PhaseRelay)
		m.failures.WithLabelValues(doorOf(e.Request.Door), phase, sideOf(e.Err)).Inc()
	}, next.Failed)
	return next
}

func doorOf(d gateway.Door) string {
	return oneOf(d, gateway.DoorConnect, gateway.DoorSOCKS5, gateway.DoorSNI)
}

// sideOf returns where to look because of an error, as [tunnel.Side] has it; empty where
// only the gateway knows. A limit that Dial applies is a policy.
func sideOf(err error) string {
	var (
		e       *tunnel.Error
		limited gateway.Limited
	)
	switch {
	case errors.As(err, &e):
		return string(e.Code.Side())
	case errors.As(err, &limited):
		return string(tunnel.SidePolicy)
	}
	return ""
}

// Describe implements [prometheus.Collector].
func (m *Gateway) Describe(ch chan<- *prometheus.Desc) { family.Describe(gatewayFamilies, ch) }

var errGatewayStatus = errors.New("prometheus: field Status of the Gateway is required")

// Collect implements [prometheus.Collector]. It asks for the Status once.
func (m *Gateway) Collect(ch chan<- prometheus.Metric) {
	m.setup()
	if m.Status == nil {
		ch <- prometheus.NewInvalidMetric(gatewayReady.Desc(), errGatewayStatus)
		return
	}
	m.vectors.Collect(ch)
	status := m.Status()
	send(ch, gatewayReady, oneIf(status.Ready))
	send(ch, gatewayOpen, float64(status.Open))
	send(ch, gatewayHandshakes, float64(status.Pending), "pending")
	send(ch, gatewayHandshakes, float64(status.Waiting), "waiting")
	send(ch, gatewayTotal, float64(status.Total))
	send(ch, gatewayReceived, float64(status.BytesIn))
	send(ch, gatewaySent, float64(status.BytesOut))
}
