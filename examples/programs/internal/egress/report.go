package egress

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/printable"
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

// An answer is what came of a request.
type answer struct {
	request
	err error
}

// kindLogs is the kind of requests of which one has to succeed.
const kindLogs = "logs"

// makeRequests makes each request; of logs, it stops at the first one that succeeds.
func (s *survey) makeRequests(ctx context.Context) (all []answer) {
	read := false // a log
	for _, r := range s.requests {
		if r.kind == kindLogs && read {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		a := answer{r, r.run(limited)}
		cancel()
		read = read || a.err == nil
		all = append(all, a)
	}
	return all
}

// A report is what is known about a switch.
type report struct {
	cluster       string
	from, to      egress.Phase
	targets       []target
	ways          map[string]comparison // by address
	waysErr       error
	before, after []answer
	notes         []string
}

// failuresBefore says what speaks against the switch.
func (r *report) failuresBefore() (all []string) {
	if r.from == egress.PhaseOff || r.to == egress.PhaseOff && r.from == egress.PhaseBeside {
		return nil // kube-apiserver goes its own way before and after
	}
	if r.from == r.to && r.waysErr == nil {
		same := *r
		same.after = r.before
		return same.failuresAfter(false)
	}
	return r.failedTargets(r.to == egress.PhaseOn)
}

// kindAPIServer is the kind of the target of a cluster without nodes: the agent's own API
// server, which each agent may dial by its usual name.
const kindAPIServer = "API server"

// failedTargets says where one of the ways is worse than the other one.
func (r *report) failedTargets(tunnel bool) (all []string) {
	if r.waysErr != nil {
		return []string{fmt.Sprintf("the ways can't be compared: %v", r.waysErr)}
	}
	kubelets, reached, last := 0, 0, ""
	for _, t := range r.targets {
		c, compared := r.ways[t.address]
		if !compared {
			continue
		}
		next, other, way := c.Direct, c.Tunnel, "directly"
		if tunnel {
			next, other, way = c.Tunnel, c.Direct, "through the tunnel"
		}
		name := t.kind + " " + t.name + " (" + t.address + ")"
		switch {
		case next.Error != "" && other.Error == "":
			all = append(all, fmt.Sprintf("%s can't be reached %s, though the other way works: %s", name, way, next.Error))
		case next.Error == "" && other.Error == "" && next.Certificate != other.Certificate:
			all = append(all, fmt.Sprintf("%s: the two ways lead to different servers: the certificates differ", name))
		}
		if t.kind == "kubelet" || t.kind == kindAPIServer {
			kubelets++
			if last = cmp.Or(next.Error, last); next.Error == "" {
				reached++
			}
		}
	}
	if tunnel && kubelets > 0 && reached == 0 && len(all) == 0 {
		what := "no kubelet can be reached through the tunnel, nor directly: "
		if r.targets[0].kind == kindAPIServer {
			what = "the cluster has no nodes, and its API server can't be reached through the tunnel: "
		}
		all = append(all, what+last)
	}
	return all
}

// failuresAfter says which requests speak for going back: they worked before, or they fail
// though the comparison has reached their target through the tunnel. With force, those that
// the report has announced do not count.
func (r *report) failuresAfter(force bool) (all []string) {
	worked, read := map[string]bool{}, false
	for _, b := range r.before {
		worked[b.kind+" "+b.name] = b.err == nil
	}
	for _, a := range r.after {
		read = read || a.kind == kindLogs && a.err == nil
	}
	for _, a := range r.after {
		if a.err == nil || a.kind == kindLogs && read {
			continue
		}
		way, known := r.ways[a.address]
		reached := known && way.Direct.Error == ""
		if r.to == egress.PhaseOn {
			reached = known && way.Tunnel.Error == ""
		}
		switch {
		case force && known && !reached: // announced
		case worked[a.kind+" "+a.name], reached && r.to == egress.PhaseOn:
			all = append(all, fmt.Sprintf("%s %s fails: %v", a.kind, a.name, a.err))
		}
	}
	return all
}

// write writes the report as tables.
func (r *report) write(w io.Writer) {
	fmt.Fprintf(w, "cluster  %s\nphase    %s -> %s\n", r.cluster, r.from, r.to)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(r.ways) > 0 {
		fmt.Fprintln(table, "\nTARGET\tADDRESS\tDIRECTLY\tTHROUGH THE TUNNEL")
	}
	for _, t := range r.targets {
		if c, ok := r.ways[t.address]; ok {
			fmt.Fprintf(table, "%s %s\t%s\t%s\t%s\n", t.kind, t.name, t.address, c.Direct.text(), c.Tunnel.text())
		}
	}
	if len(r.before) > 0 {
		fmt.Fprintln(table, "\nREQUEST\tBEFORE\tAFTER")
	}
	for _, b := range r.before {
		after := "-"
		for _, a := range r.after {
			if a.kind == b.kind && a.name == b.name {
				after = errorText(a.err)
			}
		}
		fmt.Fprintf(table, "%s %s\t%s\t%s\n", b.kind, b.name, errorText(b.err), after)
	}
	table.Flush()
	for _, note := range r.notes {
		fmt.Fprintln(w, "note     "+printable.Text(note, len(note)))
	}
}

func (r result) text() string {
	if r.Error != "" {
		return errorText(errors.New(r.Error))
	}
	return "ok " + r.Took.Round(time.Millisecond/10).String()
}

// errorText keeps an error on its line of a table; PROBLEM lines have the whole.
func errorText(err error) string {
	if err == nil {
		return "ok"
	}
	return "FAILS: " + printable.Text(strings.Join(strings.Fields(err.Error()), " "), 60)
}
