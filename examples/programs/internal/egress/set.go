package egress

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/tunnel/egress"
)

const setLong = `Brings the kube-apiserver of CLUSTER from its phase to the next PHASE, forward or back: off,
beside, on. kube-apiserver restarts once. In the phase that it has already, nothing is changed.

A report before the switch compares both ways, and stops the switch if the new way is worse. The
same after it takes the switch back. docs/egress.md says what is compared.

For a static pod it runs on the machine with the --manifest, as root: on each control plane
machine, one after the other. For a Deployment it runs anywhere.

If kube-apiserver does not answer at all, --force goes back by one phase without a report.

The status is 0 if the kube-apiserver is in PHASE and works, and 1 if not.`

const setExample = "  causeway egress set beside default/prod --manifest /etc/kubernetes/manifests/kube-apiserver.yaml --gateway https://tunnel.example.com:3129 --image registry.example.com/causeway:1"

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
			s, err := f.newSwitch(ctx, to, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			return s.run(ctx)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// newSwitch connects to the clusters.
func (f *placeFlags) newSwitch(ctx context.Context, to egress.Phase, out io.Writer) (*phaseSwitch, error) {
	s := &phaseSwitch{placeFlags: f, to: to, out: out}
	local := ""
	if f.manifest != "" {
		manifest, err := os.ReadFile(f.manifest)
		if err != nil {
			return nil, fmt.Errorf("--manifest: %w", err)
		}
		local = localServer(manifest)
		if _, err := os.ReadDir(f.sidecar.CredentialsPath); err != nil && to != egress.PhaseOff {
			return nil, fmt.Errorf("--credentials: %w: the sidecar would not start; make the directory, with the files username and password", err)
		}
	}
	var err error
	if s.cluster, err = newCluster(f.kubeconfig, local); err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	if f.manifest != "" {
		p := &staticPod{placeFlags: f, cluster: s.cluster}
		if p.started, err = p.startTime(ctx); err != nil && !f.force { // with it, whatever serves later has been restarted
			return nil, fmt.Errorf("--kubeconfig: the API server's /metrics: %w; if kube-apiserver is down, --force goes back to the phase before", err)
		}
		s.place = p
		return s, nil
	}
	management, err := newCluster(f.management, "")
	if err != nil {
		return nil, fmt.Errorf("--management-kubeconfig: %w", err)
	}
	namespace, name, _ := strings.Cut(f.deployment, "/")
	s.place = &hostedPod{management, namespace, name, f.sidecar.SocketDir()}
	return s, nil
}

// A phaseSwitch brings one kube-apiserver to a phase.
type phaseSwitch struct {
	*placeFlags
	place    place
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
	step := slices.Index(egress.Phases(), s.to) - slices.Index(egress.Phases(), s.from)
	if step > 1 || step < -1 {
		return cli.Mistake("kube-apiserver is in the phase %s: the next one is %s", s.from, egress.PhaseBeside)
	}
	next, err := s.sidecar.SetPhase(manifest, s.to)
	if err := cli.FieldMistake(err, fieldFlags...); err != nil && step != 0 {
		return err
	}
	before, err := s.cluster.takeSurvey(ctx)
	switch {
	case err != nil && step < 0 && s.force:
		fmt.Fprintf(s.out, "kube-apiserver does not answer, so there is no report: %v\n", err)
		return s.apply(ctx, nil, manifest, next)
	case err != nil && step < 0:
		return fmt.Errorf("kube-apiserver does not answer (--force goes back to %s all the same): %w", s.to, err)
	case err != nil:
		return err
	}
	s.report = report{cluster: s.sidecar.Cluster, from: s.from, to: s.to, notes: before.notes}
	s.report.before = before.makeRequests(ctx)
	if s.from != egress.PhaseOff {
		s.compareWays(ctx, before)
	}
	s.report.write(s.out)
	failures := s.printProblems(s.report.failuresBefore())
	switch {
	case step == 0:
		fmt.Fprintf(s.out, "\nkube-apiserver is in the phase %s already: nothing was changed\n", s.to)
		if failures {
			return cli.ErrFailed
		}
		return nil
	case failures && !s.force:
		fmt.Fprintf(s.out, "\nkube-apiserver stays in the phase %s: mend this, or set --force\n", s.from)
		return cli.ErrFailed
	}
	return s.apply(ctx, before, manifest, next)
}

func (s *phaseSwitch) printProblems(texts []string) (some bool) {
	for _, text := range texts {
		fmt.Fprintln(s.out, "PROBLEM  "+text)
	}
	return len(texts) > 0
}

func (s *phaseSwitch) compareWays(ctx context.Context, found *survey) {
	s.report.targets, s.report.ways = found.targets, map[string]comparison{}
	var addresses []string
	for _, t := range found.targets {
		addresses = append(addresses, t.address)
	}
	slices.Sort(addresses)
	all, err := s.place.compare(ctx, slices.Compact(addresses))
	s.report.waysErr = err
	for _, c := range all {
		s.report.ways[c.Target] = c
	}
}

// apply switches, and goes back if the API server does not work then. Without a survey it
// does not go back: the phase before does not work either.
func (s *phaseSwitch) apply(ctx context.Context, before *survey, manifest, next []byte) error {
	if s.dryRun {
		fmt.Fprintf(s.out, "\nthe manifest in the phase %s:\n%s", s.to, next)
		return nil
	}
	began := time.Now()
	if err := s.place.write(ctx, manifest, next, s.from); err != nil {
		return err
	}
	if written, err := s.place.read(ctx); err == nil {
		next = written // what the API server made of it: defaults
	}
	fmt.Fprintf(s.out, "\nswitched to %s; waiting for kube-apiserver\n", s.to)
	if !s.printProblems(s.verify(ctx, before)) {
		fmt.Fprintf(s.out, "kube-apiserver is in the phase %s and works, after %.1f s\n", s.to, time.Since(began).Seconds())
		return nil
	}
	if before == nil {
		return cli.ErrFailed
	}
	if errors.Is(context.Cause(ctx), context.Canceled) { // even then it is not left half done
		ctx = context.WithoutCancel(ctx)
	}
	fmt.Fprintf(s.out, "going back to %s\n", s.from)
	if err := s.restore(ctx, next, manifest); err != nil {
		return fmt.Errorf("kube-apiserver did not come back to the phase %s: %w; %s", s.from, err, s.place.former())
	}
	fmt.Fprintf(s.out, "kube-apiserver is in the phase %s again, and works\n", s.from)
	return cli.ErrFailed
}

// restore brings the former manifest back. If somebody has changed the manifest since it was
// written, only the phase is taken back.
func (s *phaseSwitch) restore(ctx context.Context, written, former []byte) error {
	now, err := s.place.read(ctx)
	if err == nil && !bytes.Equal(now, written) {
		fmt.Fprintln(s.out, "somebody has changed the manifest meanwhile: the change stays, and only the phase goes back")
		former, err = s.sidecar.SetPhase(now, s.from)
	}
	if err == nil {
		err = s.place.write(ctx, now, former, s.to)
	}
	if err != nil {
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
	if before == nil {
		return nil
	}
	if s.from == egress.PhaseOff {
		s.compareWays(ctx, before)
	}
	// What kube-apiserver learns by its own watches, such as Services, it may not know yet.
	var failures []string
	wait.PollUntilContextTimeout(ctx, pollEvery, min(s.timeout, 30*time.Second), true, func(context.Context) (bool, error) {
		s.report.after = before.makeRequests(ctx)
		failures = s.report.failuresAfter(s.force)
		return len(failures) == 0, nil
	})
	s.report.write(s.out)
	if s.from == egress.PhaseOff && !s.force { // the new sidecar is what is used next
		failures = append(failures, s.report.failedTargets(true)...)
	}
	return failures
}

const pollEvery = 500 * time.Millisecond

// waitReady waits until the kube-apiserver of the manifest serves. The error is the last one
// of its own.
func (s *phaseSwitch) waitReady(ctx context.Context) (last error) {
	err := wait.PollUntilContextTimeout(ctx, pollEvery, s.timeout, true, func(ctx context.Context) (bool, error) {
		err := s.place.ready(ctx)
		if last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	return cmp.Or(last, err)
}
