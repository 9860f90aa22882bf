// Package doctor is the command that goes the way of a kubeconfig, phase by phase.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

const long = `Connects to the API server of a kubeconfig, through its proxy if it has one. It says which
phase fails, why, and what to do about it.

The kubeconfig is --kubeconfig, or the files of the variable KUBECONFIG, merged as kubectl
merges them, or ~/.kube/config. Only the kubeconfig decides the route. Notes below the
table say what other programs would do, because of HTTPS_PROXY for example.

The status says what failed:

  0  nothing, everything works
  1  the kubeconfig can't be used
  2  a mistake on the command line
  3  the connection: a name, the network, the proxy, or what the proxy connects to
  4  the login to the proxy or the tunnel's gateway, its ticket included
  5  the tunnel: no agent, a target that is not allowed, or one that the agent does not reach; or a limit
  6  TLS with the API server
  7  the API server refuses the credentials, or does not answer to them
  8  the API server is not ready

With --capi-cluster it begins at the management cluster of Cluster API, and tries the kubeconfig
that the controllers there have for the Cluster.

It prints no secret, and changes nothing in the cluster.`

const example = `  $ causeway doctor --kubeconfig prod.conf
  context  kubernetes-admin@prod
  server   https://192.0.2.10:6443
  route    http://192.0.2.1:3128

    ok     config        0.1 ms  client certificate "kubernetes-admin" until 2027-03-01
    ok     tcp           0.4 ms  192.0.2.1:3128
    FAIL   proxy auth    2.1 ms  the proxy answered 407: it refused the user name and password

  cause    proxy auth: the proxy answered 407: it refused the user name and password
  remedy   Correct user name and password in the kubeconfig's proxy-url (percent-encode ...`

// Command returns the command.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "go the way of a kubeconfig, and say what stops it and what to do",
		Long:    long,
		Example: example,
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.timeout <= 0 {
				return cli.Mistake("--timeout must be more than zero, such as 15s")
			}
			if parts := strings.Split(o.cluster, "/"); o.cluster != "" && (len(parts) != 2 || slices.Contains(parts, "")) {
				return cli.Mistake("--capi-cluster %q is not NAMESPACE/NAME", o.cluster)
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	set := cmd.Flags()
	set.StringVar(&o.kubeconfig, "kubeconfig", "", "the kubeconfig `file`; without it KUBECONFIG, or ~/.kube/config")
	set.StringVar(&o.context, "context", "", "the `name` of the context; without it the current one")
	set.StringVar(&o.cluster, "capi-cluster", "", "`NAMESPACE/NAME` of a Cluster of Cluster API: --kubeconfig is the management cluster's, the kubeconfig is the one in the Cluster's Secret, and notes say what causeway provider was told and what it thinks")
	set.DurationVar(&o.timeout, "timeout", 15*time.Second, "how long all of it may take")
	set.BoolVar(&o.json, "json", false, "write the report as JSON")
	return cmd
}

// options are the flags.
type options struct {
	kubeconfig, context, cluster string
	timeout                      time.Duration
	json                         bool
}

// diagnosis is what --json prints. docs/troubleshooting.md has its fields.
type diagnosis struct {
	Context string       `json:"context"`
	OK      bool         `json:"ok"`
	Status  int          `json:"status"`
	Report  probe.Report `json:"report"`
	Notes   []string     `json:"notes"`
}

func (o options) run(ctx context.Context, stdout io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	d := diagnose(ctx, o)
	d.Status = statusOf(d.Report)
	if o.json {
		err = cli.WriteJSON(stdout, d)
	} else {
		err = writeTable(stdout, d)
	}
	if err == nil && !d.OK {
		err = cli.Status(d.Status)
	}
	return err
}

func diagnose(ctx context.Context, o options) diagnosis {
	began := time.Now()
	config, err := loadKubeconfig(o)
	about := []string{}
	if err == nil && o.cluster != "" {
		var m *management
		if m, err = newManagement(config, o.cluster); err == nil {
			config, about, err = m.read(ctx)
		}
	}
	if err != nil {
		return diagnosis{Context: o.context, Notes: append([]string{}, about...), Report: unreadableReport(err, time.Since(began))}
	}
	d := diagnosis{Context: config.CurrentContext, Report: probe.Run(ctx, config)}
	d.OK = d.Report.OK()
	d.Notes = append(about, environmentNotes(config, d.Report, os.Getenv)...)
	return d
}

var errNoKubeconfig = errors.New("there is no kubeconfig, or it is empty")

// loadKubeconfig reads kubeconfig files as kubectl does.
func loadKubeconfig(o options) (*clientcmdapi.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	rules.MigrationRules = nil // which would write
	rules.WarnIfAllMissing = false
	if err := checkFiles(rules); err != nil {
		return nil, err
	}
	config, err := rules.Load()
	switch {
	case err != nil:
		return nil, err
	case clientcmdapi.IsConfigEmpty(config):
		return nil, errNoKubeconfig
	case o.context != "":
		config.CurrentContext = o.context
	}
	return config, nil
}

// checkFiles returns an error for the first file that can't be read. It quotes nothing of
// the file, as the loading rules' error does.
func checkFiles(rules *clientcmd.ClientConfigLoadingRules) error {
	for _, file := range rules.GetLoadingPrecedence() {
		text, err := os.ReadFile(file)
		if err != nil || len(text) == 0 {
			continue // for the rules
		}
		if _, err := kubeconfig.Load(text); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// unreadableReport is the report for a kubeconfig that can't be read.
func unreadableReport(err error, took time.Duration) probe.Report {
	advice := "Mend the file."
	if errors.Is(err, errNoKubeconfig) || errors.Is(err, os.ErrNotExist) {
		advice = "Name a file by --kubeconfig or the variable KUBECONFIG."
	}
	if e, ok := errors.AsType[clusterError](err); ok {
		advice = e.advice
	}
	return probe.Report{Steps: []probe.Step{{
		Phase: probe.PhaseConfig, Took: took, Err: err, Advice: advice,
		Cause: strings.Join(strings.Fields(err.Error()), " "),
	}}}
}

// The statuses of doctor, as its help has them. They don't change their meaning; 2 is a mistake on
// the command line, as everywhere.
const (
	statusFailed = 1 // the kubeconfig can't be used
	statusTunnel = 5
)

var phaseStatuses = map[probe.Phase]int{
	probe.PhaseDNS:       3,
	probe.PhaseTCP:       3,
	probe.PhaseProxyTLS:  3,
	probe.PhaseProxyAuth: 4,
	probe.PhaseConnect:   3,
	probe.PhaseTLS:       6,
	probe.PhaseAuth:      7,
	probe.PhaseReady:     8,
}

// statusOf returns the status to exit with.
func statusOf(r probe.Report) int {
	failed := r.Failed()
	switch {
	case r.OK():
		return 0
	case failed == nil:
		return statusFailed
	case failed.Tunnel:
		return statusTunnel
	}
	return cmp.Or(phaseStatuses[failed.Phase], statusFailed)
}

// writeTable writes a diagnosis for a person.
func writeTable(w io.Writer, d diagnosis) error {
	var b strings.Builder
	writeRow := func(label, text string) {
		fmt.Fprintf(&b, "%-8s %s\n", label, printable.Text(text, len(text)))
	}
	for _, row := range [][2]string{{"context", printable.Quote(d.Context)}, {"server", d.Report.Server}, {"route", d.Report.Route}} {
		if row[1] != "" {
			writeRow(row[0], row[1])
		}
	}
	b.WriteString("\n")
	for _, s := range d.Report.Steps {
		mark, found := "ok", s.Detail
		if s.Err != nil {
			mark, found = "FAIL", s.Cause
		}
		writeRow("  "+mark, strings.TrimRight(fmt.Sprintf("%-10s  %8s  %s", s.Phase, formatDuration(s.Took), found), " "))
	}
	b.WriteString("\n")
	if failed := d.Report.Failed(); failed != nil {
		writeRow("cause", string(failed.Phase)+": "+failed.Cause)
		if failed.Advice != "" {
			writeRow("remedy", failed.Advice)
		}
	} else {
		writeRow("good", strings.TrimSuffix("the API server is reached: "+d.Report.Version, ": "))
	}
	for _, note := range d.Notes {
		writeRow("note", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func formatDuration(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f s", ms/1000)
	}
}
