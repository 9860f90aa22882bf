package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/internal/e2e/bed"
	"github.com/causewayproject/causeway/kubeconfig/provider"
)

type providerInput struct {
	Kubeconfig []byte // of the management cluster; the administrator's if empty
	Namespaces []string
	Config     provider.Config
	Leader     *leaderInput
}

type leaderInput struct {
	Namespace, Identity string
	Lease, Renew, Retry time.Duration
}

// providerRole is a kubeconfig provider, until SIGTERM. It prints all that is logged,
// as a careless program would.
func providerRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input providerInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("provider role: input: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.RESTConfigFromKubeConfig(input.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	ctrl.SetLogger(funcr.New(func(prefix, args string) {
		fmt.Fprintln(out, time.Now().Format("15:04:05.000"), prefix, args)
	}, funcr.Options{Verbosity: 6}))
	options := ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		Cache:   controllers.CacheOptions(input.Namespaces...),
	}
	if input.Leader != nil {
		if err := input.Leader.apply(config, &options); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	r := &controllers.KubeconfigReconciler{Config: input.Config, Namespaces: input.Namespaces}
	if err := r.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 4}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// apply has the manager elect a leader by a Lease, in which this process has its own
// name.
func (l *leaderInput) apply(config *rest.Config, options *ctrl.Options) error {
	leases, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return err
	}
	options.LeaderElection, options.LeaderElectionReleaseOnCancel = true, true
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = ptr.To(l.Lease), ptr.To(l.Renew), ptr.To(l.Retry)
	options.LeaderElectionResourceLockInterface = &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: "kubeconfig-provider"},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity},
	}
	return nil
}

// startProvider starts a provider beside the management cluster, until the test
// ends.
func (m *management) startProvider(t *testing.T, input providerInput) *bed.Running {
	t.Helper()
	if input.Kubeconfig == nil {
		input.Kubeconfig = m.config
	}
	return startRole(t, m.bed.Network.Client, "kubeconfig-provider", input)
}
