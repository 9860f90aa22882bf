package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/reconcilers/kubeadmconfig"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/reconcilers/kubeadmcontrolplane"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/setup"
	clusterreconciler "sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

type capiInput struct {
	Kubeconfig []byte // of the management cluster
	Namespace  string // of the Clusters
	Clusters   []string
	// Controllers adds that of Clusters, which says whether they are available,
	// and that of the kubeadm control plane, which makes, adopts and rotates
	// kubeconfigs.
	Controllers bool
	// Bootstrap adds that of Clusters, and kubeadm's bootstrap provider, which makes
	// the user data of machines.
	Bootstrap bool
	// Etcd has each Cluster's etcd be asked for its members, as the controller of the kubeadm
	// control plane does when it reconciles. May be nil.
	Etcd *etcdInput
}

// capiState is what Cluster API thinks of its connection to a Cluster.
type capiState struct {
	Cluster   string
	Connected bool
	System    string    // the UID of kube-system, which tells one cluster from another
	Green     time.Time // of the last probe that succeeded
	Failures  int       // probes in a row
	EtcdDials int       // that reached etcd
	EtcdError string    // of the last one
}

func capiScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme),
		controlplanev1.AddToScheme(scheme), bootstrapv1.AddToScheme(scheme))
}

// capiRole is Cluster API's manager with its ClusterCache, put together as its
// own programs are, until SIGTERM. It writes a line for each change of a state.
func capiRole(ctx context.Context, in io.Reader, out io.Writer) error {
	var input capiInput
	if err := json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("cluster-api-manager role: input: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{Verbosity: 6}))
	config, err := clientcmd.RESTConfigFromKubeConfig(input.Kubeconfig)
	if err != nil {
		return err
	}
	scheme, err := capiScheme()
	if err != nil {
		return err
	}
	const name = "e2e"
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 server.Options{BindAddress: "0"},
		Cache:                   setup.ManagerCacheOptions(scheme, name, input.Namespace, time.Hour),
		Client:                  setup.ManagerClientOptions(),
		GracefulShutdownTimeout: ptr.To(time.Duration(0)),
	})
	if err != nil {
		return err
	}
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return err
	}
	clusters, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: secrets,
		Cache:        setup.ClusterCacheCacheOptions(),
		Client:       setup.ClusterCacheClientOptions(name, 20, 30),
	}, controller.Options{MaxConcurrentReconciles: 10})
	if err != nil {
		return err
	}
	// Half a minute, by default: longer than a test of a few seconds.
	clusters.(interface{ SetConnectionCreationRetryInterval(time.Duration) }).SetConnectionCreationRetryInterval(time.Second)
	if input.Controllers || input.Bootstrap {
		if err := addClusters(ctx, mgr, clusters); err != nil {
			return err
		}
	}
	if input.Controllers {
		if err := addControlPlanes(ctx, mgr, secrets, clusters); err != nil {
			return err
		}
	}
	if input.Bootstrap {
		if err := addBootstrap(ctx, mgr, secrets, clusters); err != nil {
			return err
		}
	}
	var telling sync.WaitGroup
	telling.Go(func() { tellStates(ctx, clusters, input, out) })
	defer telling.Wait()
	return mgr.Start(ctx)
}

func addClusters(ctx context.Context, mgr ctrl.Manager, clusters clustercache.ClusterCache) error {
	return (&clusterreconciler.Reconciler{
		Client:                      mgr.GetClient(),
		APIReader:                   mgr.GetAPIReader(),
		ClusterCache:                clusters,
		RemoteConnectionGracePeriod: 2 * time.Minute,
	}).SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 10})
}

func addBootstrap(ctx context.Context, mgr ctrl.Manager, secrets client.Client, clusters clustercache.ClusterCache) error {
	return (&kubeadmconfig.Reconciler{
		Client:              mgr.GetClient(),
		SecretCachingClient: secrets,
		APIReader:           mgr.GetAPIReader(),
		ClusterCache:        clusters,
		TokenTTL:            kubeadmconfig.DefaultTokenTTL,
	}).SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 10})
}

func addControlPlanes(ctx context.Context, mgr ctrl.Manager, secrets client.Client, clusters clustercache.ClusterCache) error {
	return (&kubeadmcontrolplane.Reconciler{
		Client:                      mgr.GetClient(),
		APIReader:                   mgr.GetAPIReader(),
		SecretCachingClient:         secrets,
		ClusterCache:                clusters,
		EtcdDialTimeout:             10 * time.Second,
		EtcdCallTimeout:             10 * time.Second,
		EtcdLogger:                  zap.NewNop(),
		RemoteConditionsGracePeriod: 2 * time.Minute,
	}).SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 10})
}

// tellStates writes the states, as they change, until ctx ends.
func tellStates(ctx context.Context, clusters clustercache.ClusterCache, input capiInput, out io.Writer) {
	every := 100 * time.Millisecond
	if input.Etcd != nil { // each dial is several connections
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	told := map[string]capiState{}
	for {
		for _, name := range input.Clusters {
			key := client.ObjectKey{Namespace: input.Namespace, Name: name}
			state := stateOf(ctx, clusters, key, told[name])
			if input.Etcd != nil && state.Connected {
				state = input.Etcd.dial(ctx, clusters, key, state)
			}
			if state != told[name] {
				told[name] = state
				json.NewEncoder(out).Encode(state)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// stateOf asks the cluster who it is each time it has been connected anew.
func stateOf(ctx context.Context, clusters clustercache.ClusterCache, key client.ObjectKey, before capiState) capiState {
	health := clusters.GetHealthCheckingState(ctx, key)
	state := capiState{Cluster: key.Name, System: before.System, EtcdDials: before.EtcdDials, EtcdError: before.EtcdError, Green: health.LastProbeSuccessTime, Failures: health.ConsecutiveFailures}
	live, err := clusters.GetUncachedClient(ctx, key)
	if err != nil {
		state.System = ""
		return state
	}
	state.Connected = true
	if state.System == "" {
		var system corev1.Namespace
		if err := live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
			state.System = err.Error()
			return state
		}
		state.System = string(system.UID)
	}
	return state
}

// isLost says that there is no connection.
func (s capiState) isLost() bool { return !s.Connected }

// readStates returns the last state of each Cluster, and those in which one that
// was connected was no more, or a probe failed.
func readStates(text string) (last map[string]capiState, lost []capiState, err error) {
	last = map[string]capiState{}
	for decoder := json.NewDecoder(strings.NewReader(text)); ; {
		var state capiState
		switch err := decoder.Decode(&state); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // a line may be on its way
			return last, lost, nil
		case err != nil:
			return nil, nil, err
		}
		if last[state.Cluster].Connected && !state.Connected || state.Failures > 0 && last[state.Cluster].Connected {
			lost = append(lost, state)
		}
		last[state.Cluster] = state
	}
}
