package webhook_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/webhook"
)

// serveEnv has the process serve, with the files in a directory, instead of testing.
const serveEnv = "WEBHOOK_TEST_SERVE"

// serveReviews is the other process: memory is measured from outside.
func serveReviews(dir string) error {
	certificate, err := webhook.LoadCertificate(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), nil)
	if err != nil {
		return err
	}
	i, err := proxyconfig.NewInjector(opts)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin) // until the test has ended
		stop()
	}()
	s := webhook.Server{Handler: webhook.New(i, webhook.Options{}), TLS: &tls.Config{GetCertificate: certificate.Get}}
	return s.Serve(ctx, l)
}
