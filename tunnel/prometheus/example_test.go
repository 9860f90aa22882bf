package prometheus_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/causewayproject/causeway/tunnel"
	metrics "github.com/causewayproject/causeway/tunnel/prometheus"
)

// The metrics of a server, beside hooks of one's own.
func Example() {
	authority, err := tunnel.NewAuthority()
	if err != nil {
		log.Fatal(err)
	}
	server := &tunnel.Server{Authority: authority, Hooks: tunnel.Hooks{
		Connected: func(s tunnel.SessionInfo) { log.Print(s.Cluster, " is connected") },
	}}
	m := &metrics.Server{Status: server.Status}
	server.Hooks = m.Hooks(server.Hooks) // before it serves

	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{}) // serve it as /metrics

	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if strings.Contains(line, "causeway_tunnel_ready") {
			fmt.Print(line)
		}
	}
	// Output:
	// # HELP causeway_tunnel_ready 1 while the server takes agents, 0 once it drains.
	// # TYPE causeway_tunnel_ready gauge
	// causeway_tunnel_ready 1
}
