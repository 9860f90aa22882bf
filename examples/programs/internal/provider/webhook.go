package provider

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/examples/programs/internal/metrics"
)

// webhookFlags say where the webhook is that puts lost routes back at admission.
type webhookFlags struct{ listen, cert, key string }

func (f *webhookFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.listen, "webhook-listen", "", "`address` of the webhook that puts a lost route back before a kubeconfig is stored; empty for none")
	set.StringVar(&f.cert, "webhook-cert", "", "`file` of its certificate and its chain, PEM; followed")
	set.StringVar(&f.key, "webhook-key", "", "`file` of the certificate's key, PEM")
}

// server returns the manager's webhook server, and its certificate; nil if there is to be
// none. It listens when the manager is started.
func (f *webhookFlags) server(log *slog.Logger) (webhook.Server, metrics.Certificates, error) {
	if f.listen == "" {
		if f.cert+f.key != "" {
			return nil, nil, cli.Mistake("--webhook-cert and --webhook-key: there is no --webhook-listen")
		}
		return nil, nil, nil
	}
	_, text, err := net.SplitHostPort(f.listen)
	port, portErr := strconv.ParseUint(text, 10, 16)
	if err != nil || portErr != nil || port == 0 {
		return nil, nil, cli.Mistake("--webhook-listen %q: want host:port or :port, with a port that is not 0", f.listen)
	}
	if f.cert == "" || f.key == "" {
		return nil, nil, cli.Mistake("--webhook-listen wants --webhook-cert and --webhook-key")
	}
	certificate, err := command.LoadCertificate("webhook-listen", f.cert, f.key, log)
	if err != nil {
		return nil, nil, fmt.Errorf("--webhook-cert and --webhook-key: %w", err)
	}
	server := controllers.NewWebhookServer(f.listen, &tls.Config{GetCertificate: certificate.Get, MinVersion: tls.VersionTLS12})
	return server, metrics.Certificates{"webhook-listen": certificate.Get}, nil
}
