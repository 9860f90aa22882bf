package injector

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/examples/programs/internal/logs"
	"github.com/causewayproject/causeway/examples/programs/internal/management"
	"github.com/causewayproject/causeway/examples/programs/internal/metrics"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

// A server is the webhook and its health page, which lives from newServer until run returns.
type server struct {
	*program
	webhook  webhook.Server
	l        net.Listener
	stopPage func() error
	draining atomic.Bool
}

func newServer(ctx context.Context, p *program) (*server, error) {
	certificate, err := command.LoadCertificate("listen", p.cert, p.key, p.log)
	if err != nil {
		return nil, fmt.Errorf("--cert and --key: %w", err)
	}
	config := &tls.Config{GetCertificate: certificate.Get, MinVersion: tls.VersionTLS12}
	if p.clientCA != "" {
		text, err := os.ReadFile(p.clientCA)
		if err != nil {
			return nil, fmt.Errorf("--client-ca: %w", err)
		}
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return nil, errors.New("--client-ca: there is no certificate in it")
		}
	}
	s := &server{program: p}
	s.webhook = webhook.Server{Handler: p.handler, TLS: config, Grace: p.drain, ErrorLog: stdlog.New(httpErrors{p.asked}, "", 0),
		Refused: func(status int, err error) { p.hooks().Reviewed(webhook.Review{Status: status, Err: err}) }}
	if s.l, err = new(net.ListenConfig).Listen(ctx, "tcp", p.listen); err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	pages := s.pages(management.MetricsHandler(p.reviews, metrics.Certificates{"listen": certificate.Get}))
	if s.stopPage, err = cli.StartPage(ctx, p.log, "health", p.health, pages); err != nil {
		s.l.Close()
		return nil, fmt.Errorf("--health: %w", err)
	}
	return s, nil
}

// httpErrors writes what an http.Server says, such as of clients that are no API server.
type httpErrors struct{ asked *logs.Sampler }

func (h httpErrors) Write(text []byte) (int, error) {
	h.asked.Write(slog.LevelWarn, "http", "", "", "error", strings.TrimSpace(string(text)))
	return len(text), nil
}

// run serves until ctx ends or a listener fails, and drains.
func (s *server) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	served := make(chan error, 1)
	go func() {
		err := s.webhook.Serve(serving, s.l)
		if serving.Err() == nil {
			fail(err)
			err = nil
		}
		served <- err
	}()
	s.log.Info("listening", "for", "reviews", "address", s.l.Addr().String())
	<-ctx.Done()
	s.draining.Store(true)
	s.log.Info("draining", "delay", s.delay, "grace", s.drain)
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) {
		cause = nil
		<-time.After(s.delay) // until no API server is led here any more
	}
	stop()
	if err := <-served; err != nil {
		s.log.Warn("drained", "error", err)
	}
	return errors.Join(cause, s.stopPage())
}

func (s *server) pages(own http.Handler) http.Handler {
	mux := metrics.Mux(own)
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case s.draining.Load():
			http.Error(w, "draining", http.StatusServiceUnavailable)
		case !s.used.Load():
			http.Error(w, "no configuration yet", http.StatusServiceUnavailable)
		}
	})
	return mux
}
