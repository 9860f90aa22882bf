package main

import "net/http"

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
