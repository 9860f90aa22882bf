package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/kubeconfig/connect"
	"github.com/causewayproject/causeway/tunnel/egress"
)

const setLong = `Brings the kube-apiserver of CLUSTER from its phase to the next PHASE, forward or back: off,
beside, on. kube-apiserver restarts once.

Before the switch it makes a report: targets that kube-apiserver connects to (kubelets, Services
of webhooks and of aggregated APIs), by both ways, and requests to the API server that make it
connect to them (a log, a command in a pod, a webhook by a dry run, an aggregated API). If the
new way fails where the old one works, or leads to another server, it does not switch, unless
--force is set.

After the switch it makes the same requests. If one fails that worked before, if the API server
does not work within --timeout, or if the sidecar that was added does not reach what can be
reached directly, it goes back to the phase before, and says why.

For a static pod it runs on the machine with the --manifest, as root: on each control plane
machine, one after the other. For a Deployment it runs anywhere.

If kube-apiserver does not answer at all, --force goes back by one phase without a report: after
a switch that was killed before it went back by itself.

In the phase that the kube-apiserver has already it only makes the report and changes nothing.
The status is 0 if the kube-apiserver is in PHASE and works, and 1 if not.`

const setExample = `  causeway egress set beside default/prod --manifest /etc/kubernetes/manifests/kube-apiserver.yaml \
    --gateway https://tunnel.example.com:3129 --image registry.example.com/causeway:1

  causeway egress set on default/prod --deployment clusters/prod-apiserver --management-kubeconfig management.conf \
    --kubeconfig prod.conf --credentials-secret prod-tunnel-route --gateway http://tunnel-server-gateway.tunnel-server.svc:3128 \
    --image registry.example.com/causeway:1`

func setCommand() *cobra.Command {
	var f placeFlags
	cmd := &cobra.Command{
		Use:     "set PHASE CLUSTER",
		Short:   "bring a kube-apiserver to a PHASE, with a report before and a way back",
		Long:    setLong,
		Example: setExample,
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := parsePhase(args[0])
			if err != nil {
				return err
			}
			f.sidecar.Cluster = args[1]
			if err := f.check(); err != nil {
				return err
			}
			// A terminal that is lost, or a pipe that nobody reads, leaves nothing half done.
			signal.Ignore(syscall.SIGPIPE)
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
			defer stop()
			s, end, err := f.newSwitch(ctx, to, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			defer end()
			return s.run(ctx)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// newSwitch connects to the clusters; end closes what it opened.
func (f *placeFlags) newSwitch(ctx context.Context, to egress.Phase, out io.Writer) (s *phaseSwitch, end func(), err error) {
	var clients []*connect.Client
	closeAll := func() {
		for _, c := range clients {
			c.Close()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	local := ""
	if f.manifest != "" {
		manifest, err := os.ReadFile(f.manifest)
		if err != nil {
			return nil, nil, fmt.Errorf("--manifest: %w", err)
		}
		local = localServer(manifest)
		if _, err := os.ReadDir(f.sidecar.CredentialsPath); err != nil && to != egress.PhaseOff {
			return nil, nil, fmt.Errorf("--credentials: %w: the sidecar would not start; make the directory, with the files username and password", err)
		}
	}
	client, err := newClient(ctx, f.kubeconfig, local)
	if err != nil {
		return nil, nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	clients = append(clients, client)
	s = &phaseSwitch{placeFlags: f, to: to, out: out}
	if s.cluster, err = newCluster(client); err != nil {
		return nil, nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	if f.manifest != "" {
		s.place, err = newStaticPlace(ctx, f, s.cluster)
		return s, closeAll, err
	}
	management, err := newClient(ctx, f.management, "")
	if err != nil {
		return nil, nil, fmt.Errorf("--management-kubeconfig: %w", err)
	}
	clients = append(clients, management)
	s.place, err = newHostedPlace(f, management)
	return s, closeAll, err
}

// newClient returns a client of a kubeconfig's cluster, at another address unless local is
// empty.
func newClient(ctx context.Context, file, local string) (*connect.Client, error) {
	config, err := connect.FileSource(file).Read(ctx)
	if err != nil {
		return nil, err
	}
	if current := config.Contexts[config.CurrentContext]; current != nil && config.Clusters[current.Cluster] != nil && local != "" {
		config.Clusters[current.Cluster].Server = local
	}
	return connect.New(config, nil)
}

// A phaseSwitch brings one kube-apiserver to a phase.
type phaseSwitch struct {
	*placeFlags
	place    *place
	cluster  *cluster
	from, to egress.Phase
	out      io.Writer
	report   report
}

func (s *phaseSwitch) run(ctx context.Context) error {
	manifest, err := s.place.read(ctx)
	if err != nil {
		return err
	}
	if s.from, err = egress.PhaseOf(manifest); err != nil {
		return err
	}
	phases := egress.Phases()
	if step := slices.Index(phases, s.to) - slices.Index(phases, s.from); step > 1 || step < -1 {
		return cli.Mistake("kube-apiserver is in the phase %s: the next one is %s", s.from, egress.PhaseBeside)
	}
	next, err := s.sidecar.SetPhase(manifest, s.to)
	if err := cli.FieldMistake(err, fieldFlags...); err != nil && s.from != s.to {
		return err
	}
	back := slices.Index(phases, s.to) < slices.Index(phases, s.from)
	before, err := s.cluster.takeSurvey(ctx)
	switch {
	case err == nil:
	case back && s.force:
		fmt.Fprintf(s.out, "kube-apiserver does not answer, so there is no report: %v\n", err)
		return s.goBack(ctx, manifest, next)
	case back:
		return fmt.Errorf("kube-apiserver does not answer (--force goes back to %s all the same): %w", s.to, err)
	default:
		return err
	}
	s.report = report{cluster: s.sidecar.Cluster, from: s.from, to: s.to, notes: before.notes}
	s.report.before = before.makeRequests(ctx)
	if s.from != egress.PhaseOff {
		s.compareWays(ctx, before)
	}
	s.report.write(s.out)
	failures := s.report.failuresBefore()
	for _, text := range failures {
		fmt.Fprintln(s.out, "PROBLEM  "+text)
	}
	switch {
	case s.from == s.to:
		return s.onlyReported(failures)
	case len(failures) > 0 && !s.force:
		fmt.Fprintf(s.out, "\nkube-apiserver stays in the phase %s: mend this, or set --force\n", s.from)
		return cli.ErrFailed
	}
	writeChange(s.out, manifest, next)
	if s.dryRun {
		return nil
	}
	return s.apply(ctx, before, manifest, next)
}

// goBack brings a kube-apiserver that does not answer to the phase before.
func (s *phaseSwitch) goBack(ctx context.Context, manifest, next []byte) error {
	writeChange(s.out, manifest, next)
	if s.dryRun {
		return nil
	}
	if err := s.place.write(ctx, manifest, next, s.from); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "\nswitched to %s; waiting for kube-apiserver\n", s.to)
	if err := s.waitReady(ctx); err != nil {
		return fmt.Errorf("kube-apiserver is in the phase %s, and does not work within %v (its log may say why): %w", s.to, s.timeout, err)
	}
	fmt.Fprintf(s.out, "kube-apiserver is in the phase %s and works\n", s.to)
	return nil
}

func (s *phaseSwitch) onlyReported(failures []string) error {
	fmt.Fprintf(s.out, "\nkube-apiserver is in the phase %s already: nothing was changed\n", s.to)
	if len(failures) > 0 {
		return cli.ErrFailed
	}
	return nil
}

func (s *phaseSwitch) compareWays(ctx context.Context, found *survey) {
	var addresses []string
	for _, t := range found.targets {
		addresses = append(addresses, t.address)
	}
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	s.report.targets = found.targets
	if len(addresses) == 0 {
		return
	}
	s.report.ways, s.report.waysErr = s.place.compare(ctx, addresses)
}

// apply switches, and goes back if the API server does not work then.
func (s *phaseSwitch) apply(ctx context.Context, before *survey, manifest, next []byte) error {
	began := time.Now()
	if err := s.place.write(ctx, manifest, next, s.from); err != nil {
		return err
	}
	written, err := s.place.read(ctx)
	if err != nil {
		written = next
	}
	fmt.Fprintf(s.out, "\nswitched to %s; waiting for kube-apiserver\n", s.to)
	failures := s.verify(ctx, before)
	if len(failures) == 0 {
		fmt.Fprintf(s.out, "kube-apiserver is in the phase %s and works, after %.1f s\n", s.to, time.Since(began).Seconds())
		return nil
	}
	for _, text := range failures {
		fmt.Fprintln(s.out, "PROBLEM  "+text)
	}
	if errors.Is(context.Cause(ctx), context.Canceled) { // even then it is not left half done
		ctx = context.WithoutCancel(ctx)
	}
	fmt.Fprintf(s.out, "going back to %s\n", s.from)
	if err := s.restore(ctx, written, manifest); err != nil {
		return fmt.Errorf("kube-apiserver did not come back to the phase %s: %w; %s", s.from, err, s.place.former)
	}
	fmt.Fprintf(s.out, "kube-apiserver is in the phase %s again, and works\n", s.from)
	return cli.ErrFailed
}

// restore brings the former manifest back. If somebody has changed the manifest since it was
// written, only the phase is taken back.
func (s *phaseSwitch) restore(ctx context.Context, written, former []byte) error {
	// What the API server made of the manifest counts: defaults and versions.
	now, err := s.place.read(ctx)
	if err != nil {
		return err
	}
	if !bytes.Equal(specOf(now), specOf(written)) {
		fmt.Fprintln(s.out, "somebody has changed the manifest meanwhile: the change stays, and only the phase goes back")
		if former, err = s.sidecar.SetPhase(now, s.from); err != nil {
			return err
		}
	}
	if err := s.place.write(ctx, now, former, s.to); err != nil {
		return err
	}
	return s.waitReady(ctx)
}

// verify returns why the new phase is not good.
func (s *phaseSwitch) verify(ctx context.Context, before *survey) []string {
	switch err := s.waitReady(ctx); {
	case err != nil && ctx.Err() != nil:
		return []string{"the command was stopped before kube-apiserver worked"}
	case err != nil:
		return []string{fmt.Sprintf("kube-apiserver does not work within %v (its log may say why): %v", s.timeout, err)}
	}
	if s.from == egress.PhaseOff {
		s.compareWays(ctx, before)
	}
	// What kube-apiserver learns by its own watches, such as Services, it may not know yet.
	var failures []string
	for until := time.Now().Add(min(s.timeout, 30*time.Second)); ; {
		s.report.after = before.makeRequests(ctx)
		failures = s.report.failuresAfter(s.force)
		if len(failures) == 0 || time.Now().After(until) || ctx.Err() != nil {
			break
		}
		waitMoment(ctx)
	}
	if s.to == egress.PhaseOn && s.manifest != "" && len(failures) == 0 {
		failures = s.checkUse(ctx)
	}
	s.report.write(s.out)
	if failed := s.report.failedSidecar(); s.force {
		for _, text := range failed {
			fmt.Fprintln(s.out, "FORCED   "+text)
		}
	} else {
		failures = append(failures, failed...)
	}
	return failures
}

// checkUse says if kube-apiserver goes its own way all the same: a script that starts it may
// have lost the flag. Of several replicas, another one could answer.
func (s *phaseSwitch) checkUse(ctx context.Context) []string {
	connected := slices.ContainsFunc(s.report.after, func(a answer) bool { return a.err == nil && a.onePod() })
	dials, err := s.cluster.readMetric(ctx, dialsMetric)
	if !connected || err != nil || dials != "" && dials != "0" {
		return nil
	}
	return []string{"kube-apiserver does not use the sidecar: it has connected to a kubelet, and its metric " + dialsMetric + " counts nothing. Does it get the flag --egress-selector-config-file?"}
}

// waitReady waits until the kube-apiserver of the manifest serves.
func (s *phaseSwitch) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var last error
	for {
		err := s.place.ready(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if waitMoment(ctx); ctx.Err() != nil {
			return last
		}
	}
}

func waitMoment(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(500 * time.Millisecond):
	}
}
