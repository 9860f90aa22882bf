package egress

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/tunnel/egress"
)

func probeCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "probe <HOST:PORT...>",
		Short: "connect to targets directly and through the sidecar, and print both as JSON",
		Long: `Runs where the sidecar runs. It connects to each HOST:PORT, directly and through the sidecar's
socket in --dir, begins TLS, and prints what came of it as JSON. It sends nothing else.

Without HOST:PORT it only checks that the sidecar listens, for a startup probe.`,
		Example: "  causeway egress probe --dir /run/causeway-egress/socket 10.0.0.7:10250",
		RunE: func(cmd *cobra.Command, targets []string) error {
			if err := command.Require(cmd, "dir"); err != nil {
				return err
			}
			if len(targets) == 0 {
				return checkListens(cmd.Context(), dir)
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(compareWays(cmd.Context(), dir, targets))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "`directory` of the sidecar's socket")
	return cmd
}

// checkListens returns an error if kube-apiserver could not use the sidecar.
func checkListens(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, egress.ConfigName)); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, egress.SocketName))
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	return conn.Close()
}

// A comparison is what came of a target by both ways.
type comparison struct {
	Target string `json:"target"`
	Direct result `json:"direct"`
	Tunnel result `json:"tunnel"`
}

// A result is what came of a connection.
type result struct {
	Took time.Duration `json:"took"` // nanoseconds in JSON
	// Certificate is the SHA-256 of the server's certificate, shortened; empty if it
	// speaks no TLS.
	Certificate string `json:"certificate,omitempty"`
	Error       string `json:"error,omitempty"` // empty: it was connected
}

const (
	probeTimeout = 10 * time.Second
	probeAtOnce  = 16
)

// compareWays connects to all targets by both ways.
func compareWays(ctx context.Context, dir string, targets []string) []comparison {
	all := make([]comparison, len(targets))
	socket := &dialer.HTTPConnect{Addr: "unix:" + filepath.Join(dir, egress.SocketName)}
	slots := make(chan struct{}, probeAtOnce)
	var wg sync.WaitGroup
	for i, target := range targets {
		all[i].Target = target
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			var both sync.WaitGroup
			both.Go(func() { all[i].Direct = probeTarget(ctx, dialer.Direct{}, target) })
			both.Go(func() { all[i].Tunnel = probeTarget(ctx, socket, target) })
			both.Wait()
		})
	}
	wg.Wait()
	return all
}

// probeTarget connects and begins TLS. The server's certificate is not verified: it only
// says whether both ways lead to the same server.
func probeTarget(ctx context.Context, d dialer.Dialer, target string) (r result) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	began := time.Now()
	conn, err := d.DialContext(ctx, "tcp", target)
	r.Took = time.Since(began)
	if err != nil {
		if failed, ok := errors.AsType[*dialer.Error](err); ok {
			err = failed.Err // the report has the target and the socket
		}
		r.Error = err.Error()
		return r
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{
		InsecureSkipVerify: true, // it is compared, and nothing is sent
		VerifyConnection: func(s tls.ConnectionState) error {
			sum := sha256.Sum256(s.PeerCertificates[0].Raw)
			r.Certificate = hex.EncodeToString(sum[:6])
			return nil
		},
	})
	err = client.HandshakeContext(ctx)
	var plain tls.RecordHeaderError
	if err != nil && r.Certificate == "" && !errors.As(err, &plain) {
		r.Error = "TLS: " + err.Error()
	}
	return r
}
