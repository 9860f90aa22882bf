package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
)

// Controller is what a program runs until its context ends.
type Controller interface {
	Run(ctx context.Context) error
	Healthz() http.Handler
	Readyz() http.Handler
}

// RunController runs c, and has /healthz, /readyz and /metrics at the address of
// the program's flag -health until c has returned; there is no page without one.
func RunController(ctx context.Context, log *slog.Logger, program, address string, c Controller, metrics http.Handler) error {
	l, err := Listen(ctx, address)
	if err != nil {
		return fmt.Errorf("%s: -health: %w", program, err)
	}
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	page := make(chan error, 1)
	if l == nil {
		page <- nil
	} else {
		log.Info("listening", "for", "health", "address", l.Addr().String())
		mux := http.NewServeMux()
		mux.Handle("/healthz", c.Healthz())
		mux.Handle("/readyz", c.Readyz())
		mux.Handle("/metrics", metrics)
		go func() { page <- ServeHTTP(late, l, mux) }()
	}
	err = c.Run(ctx)
	end()
	return errors.Join(err, <-page)
}
