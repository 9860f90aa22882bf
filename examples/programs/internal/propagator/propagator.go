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
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/management"
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

// reconciler is what the flags say.
func (f *flags) reconciler() (*controllers.ProxyReconciler, error) {
	r := &controllers.ProxyReconciler{Config: f.config, Namespaces: f.namespaces}
	namespace, name, _ := strings.Cut(f.config.Installation, "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, usage("-installation %q is not NAMESPACE/NAME", f.config.Installation)
	}
	credentials := slices.Index([]string{"everywhere", "machines", "nowhere"}, f.credentials)
	if credentials < 0 {
		return nil, usage("-credentials %q: want everywhere, machines or nowhere", f.credentials)
	}
	r.Config.Credentials = proxyconfig.Credentials(credentials)
	if f.containerd != "computed" && f.containerd != "installation" {
		return nil, usage("-containerd %q: want computed or installation", f.containerd)
	}
	r.Config.ContainerdInstallation = f.containerd == "installation"
	f.facts.NodeCIDRs = f.nodes
	if _, err := f.facts.List(); err != nil {
		return nil, usage("%v", err)
	}
	r.Facts = func(_ *unstructured.Unstructured, facts *noproxy.Cluster) {
		facts.NodeCIDRs, facts.Cloud, facts.Region = slices.Clone(f.facts.NodeCIDRs), f.facts.Cloud, f.facts.Region
	}
	if f.podSecret != "" {
		selector, err := metav1.ParseToLabelSelector(f.podNamespaces)
		if err != nil {
			return nil, usage("-pod-namespaces: %v", err)
		}
		r.EnvSecrets = &controllers.EnvSecrets{Name: f.podSecret, Namespaces: selector}
	}
	if err := r.Check(); err != nil {
		return nil, usage("%v", err)
	}
	return r, nil
}

// Run runs the command, without the process.
func Run(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) error {
	var f flags
	if err := f.parse(args, stdout); err != nil {
		return err
	}
	r, err := f.reconciler()
	if err != nil {
		return err
	}
	return f.program(r).Run(ctx, slog.New(slog.NewTextHandler(stderr, nil)))
}

func (f *flags) program(r *controllers.ProxyReconciler) management.Program {
	return management.Program{
		Name: program, Kubeconfig: f.kubeconfig, Health: f.health, Cache: controllers.CacheOptions(f.namespaces...),
		LeaseNamespace: f.lease, LeaseName: program + "-" + f.config.ManagedBy,
		Setup: func(ctx context.Context, mgr manager.Manager) error {
			return r.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: f.workers})
		},
	}
}
