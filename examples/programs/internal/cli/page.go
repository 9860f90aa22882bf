package cli

import (
	"context"
	"log/slog"
	"net/http"
)

// StartPage serves h at address, a flag's value, until stop is called, whether or not ctx has
// ended; for an empty address nothing. Stop returns what failed.
func StartPage(ctx context.Context, log *slog.Logger, what, address string, h http.Handler) (stop func() error, err error) {
	l, err := Listen(ctx, address)
	if l == nil {
		return func() error { return nil }, err
	}
	log.Info("listening", "for", what, "address", l.Addr().String())
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- ServeHTTP(ctx, l, h) }()
	return func() error {
		end()
		return <-served
	}, nil
}
