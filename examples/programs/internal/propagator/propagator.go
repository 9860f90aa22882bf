// Proxy-propagator keeps the proxy configuration of every Cluster of Cluster API
// current: the drop-in for its machines, and the values for its charts.
//
//	kubectl -n proxy-propagator create secret generic installation-proxy \
//	  --from-literal=HTTP_PROXY=http://user:p%40ss@proxy.example.com:3128 \
//	  --from-literal=HTTPS_PROXY=http://user:p%40ss@proxy.example.com:3128 \
//	  --from-literal=NO_PROXY=172.16.0.0/16,internal.example.com
//	proxy-propagator -kubeconfig management.conf -installation proxy-propagator/installation-proxy
//
// Without -kubeconfig it runs in a pod; manifest.yaml deploys it. It writes, into
// the namespace of each Cluster, the Secret <cluster>-systemd-proxy, and the Secret
// and the ConfigMap <cluster>-cluster-values. A Secret beside a Cluster holds its own
// settings:
//
//	kubectl create secret generic prod-proxy-override --from-literal=direct=true
//	kubectl label secret prod-proxy-override causewayproject.github.io/proxy-override=
//
// It takes the keys of the installation's Secret, direct and ownList (true or
// false), containerd (installation or computed) and credentials (everywhere,
// machines or nowhere). Events report settings that can't be used, and objects that
// are in the way. The process answers on /healthz, /readyz and /metrics (Prometheus'
// text).
package propagator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/metrics"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

const program = "proxy-propagator"

type flags struct {
	kubeconfig, credentials, containerd string
	podSecret, podNamespaces            string
	lease, health                       string
	namespaces, nodes                   cli.List
	facts                               noproxy.Cluster
	config                              propagate.Config
	workers                             int
}

func (f *flags) parse(args []string, stdout io.Writer) error {
	set := flag.NewFlagSet(program, flag.ContinueOnError)
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` that leads to the management cluster; default: the pod's own")
	set.Var(&f.namespaces, "namespace", "`name` of a namespace whose Clusters are looked after; several are allowed; default all")
	set.StringVar(&f.config.Installation, "installation", "proxy-propagator/installation-proxy", "`namespace/name` of the Secret with the installation's proxies")
	set.StringVar(&f.config.ManagedBy, "managed-by", "causeway", "`value` of the label giantswarm.io/managed-by; objects with another one are left alone")
	set.StringVar(&f.credentials, "credentials", "everywhere", "`where` the proxies' credentials go: everywhere, machines or nowhere")
	set.StringVar(&f.containerd, "containerd", "computed", "`list` that containerd gets: computed for the cluster, or the installation's alone")
	set.BoolVar(&f.config.MergedList, "merged-list", false, "lists in the order of package noproxy, each item once, and not as Giant Swarm has them")
	set.StringVar(&f.config.EnvSecret, "env-secret", "", "`name` of a Secret in the workload cluster, to which the values of charts refer, instead of having the proxies")
	set.Var(&f.nodes, "node-cidr", "`network` of the Clusters' nodes; several are allowed")
	set.StringVar((*string)(&f.facts.Cloud), "cloud", "", "`name` of the cloud that the Clusters are in: aws, gcp, azure or openstack")
	set.StringVar(&f.facts.Region, "region", "", "`name` of the cloud's region, which aws needs")
	set.StringVar(&f.podSecret, "pod-secret", "", "`name` of a Secret with the installation's proxies for pods of the management cluster; empty for none")
	set.StringVar(&f.podNamespaces, "pod-namespaces", "", "label `selector` of the namespaces with -pod-secret; empty for all")
	set.IntVar(&f.workers, "workers", 8, "how many Clusters are looked at side by side")
	set.StringVar(&f.lease, "leader-election", "", "`namespace` of the Lease that lets one of several replicas work; empty for none")
	set.StringVar(&f.health, "health", "127.0.0.1:8083", "`address` of /healthz, /readyz and /metrics; empty for none")
	positional, err := cli.Parse(set, args, stdout)
	if err == nil && len(positional) > 0 {
		err = usage("unexpected argument %q", positional[0])
	}
	return err
}

func usage(format string, args ...any) error {
	return cli.UsageError{Text: program + ": " + fmt.Sprintf(format, args...)}
}

// options returns the Propagator's, except the clients of the API server.
func (f *flags) options(log *slog.Logger, m *metrics.Metrics) (propagate.Options, error) {
	opts := propagate.Options{
		Namespaces: f.namespaces, Config: f.config, Workers: f.workers, Hooks: hooks(log, m, f.config.Installation),
	}
	namespace, name, _ := strings.Cut(f.config.Installation, "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return opts, usage("-installation %q is not NAMESPACE/NAME", f.config.Installation)
	}
	credentials := slices.Index([]string{"everywhere", "machines", "nowhere"}, f.credentials)
	if credentials < 0 {
		return opts, usage("-credentials %q: want everywhere, machines or nowhere", f.credentials)
	}
	opts.Config.Credentials = proxyconfig.Credentials(credentials)
	if f.containerd != "computed" && f.containerd != "installation" {
		return opts, usage("-containerd %q: want computed or installation", f.containerd)
	}
	opts.Config.ContainerdInstallation = f.containerd == "installation"
	f.facts.NodeCIDRs = f.nodes
	if _, err := f.facts.List(); err != nil {
		return opts, usage("%v", err)
	}
	opts.Facts = func(_ *unstructured.Unstructured, facts *noproxy.Cluster) {
		facts.NodeCIDRs, facts.Cloud, facts.Region = slices.Clone(f.facts.NodeCIDRs), f.facts.Cloud, f.facts.Region
	}
	if f.podSecret != "" {
		selector, err := metav1.ParseToLabelSelector(f.podNamespaces)
		if err != nil {
			return opts, usage("-pod-namespaces: %v", err)
		}
		opts.EnvSecrets = &propagate.EnvSecrets{Name: f.podSecret, Namespaces: selector}
	}
	if f.lease != "" {
		opts.LeaderElection = &propagate.LeaderElection{Namespace: f.lease, Name: program + "-" + f.config.ManagedBy}
	}
	return opts, nil
}

func (f *flags) propagator(log *slog.Logger, m *metrics.Metrics) (*propagate.Propagator, error) {
	opts, err := f.options(log, m)
	if err != nil {
		return nil, err
	}
	opts.REST, err = clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if f.kubeconfig == "" {
		opts.REST, err = rest.InClusterConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: -kubeconfig: %w", program, err)
	}
	rest.AddUserAgent(opts.REST, program)
	return propagate.New(opts)
}

// run is main without the process.
func Run(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) error {
	var f flags
	if err := f.parse(args, stdout); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	m := metrics.New("causeway_propagate_")
	p, err := f.propagator(log, m)
	if err != nil {
		return err
	}
	return cli.RunController(ctx, log, program, f.health, p, m)
}

// hooks say what is wrong with the installation's Secret once, and not for each
// Cluster and namespace that waits for it.
func hooks(log *slog.Logger, m *metrics.Metrics, installation string) propagate.Hooks {
	said := func(err error) bool {
		var of *propagate.SourceError
		return errors.As(err, &of) && of.Secret == installation
	}
	return propagate.Hooks{
		Installation: func(err error) {
			m.Set("installation_ok", number(err == nil))
			if err != nil {
				log.Warn("installation", "error", err)
				return
			}
			log.Info("installation", "ok", true)
		},
		Planned: func(cluster types.NamespacedName, _ time.Duration, err error) {
			m.Add("plans_total", "result", result(err))
			if err != nil && !said(err) {
				log.Warn("plan", "cluster", cluster.String(), "error", err)
			}
		},
		PlannedEnv: func(namespace string, err error) {
			m.Add("plans_total", "result", result(err))
			if err != nil && !said(err) {
				log.Warn("plan", "namespace", namespace, "error", err)
			}
		},
		Wrote: func(object string, kind propagate.Write, err error) {
			m.Add("writes_total", "kind", string(kind), "result", result(err))
			if err != nil {
				log.Warn("write", "object", object, "kind", kind, "error", err)
				return
			}
			log.Info("wrote", "object", object, "kind", kind)
		},
		Queued: func(depth int) { m.Set("queue_depth", depth) },
		Leading: func(on bool) {
			log.Info("leading", "on", on)
			m.Set("leading", number(on))
		},
		Error: func(err error) { log.Warn("failed", "error", err) },
	}
}

func number(on bool) int {
	if on {
		return 1
	}
	return 0
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
