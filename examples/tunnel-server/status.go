package main

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/causewayproject/causeway/tunnel"
)

// status is the page for people, and beside it what programs ask for.
func (p *program) status() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", &p.page)
	programs := p.server.StatusHandler()
	for _, path := range []string{"/healthz", "/readyz", "/status"} {
		mux.Handle(path, programs)
	}
	return mux
}

// fleet is this server alone.
func (p *program) fleet(since time.Time) func(context.Context) []tunnel.ReplicaStatus {
	return func(context.Context) []tunnel.ReplicaStatus {
		name, err := os.Hostname()
		if err != nil {
			name = "this server"
		}
		now := p.server.Status()
		return []tunnel.ReplicaStatus{{Name: name, Self: true, Connected: true, Draining: !now.Ready, Since: since, Status: now}}
	}
}
