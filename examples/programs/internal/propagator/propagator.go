// Package propagator is the command that keeps the proxy configuration of every Cluster
// current.
package propagator

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/controllers"
	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/examples/programs/internal/logs"
	"github.com/causewayproject/causeway/examples/programs/internal/management"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
	"github.com/causewayproject/causeway/proxyconfig/propagate"
)

const program = "proxy-propagator"

const long = `Keeps the proxy configuration of every Cluster of Cluster API current: the drop-in for its
machines, and the values for its charts.

Without --kubeconfig it runs in a pod; examples/deploy/proxy-propagator deploys it. It
writes, into the namespace of each Cluster, the Secret <cluster>-systemd-proxy, and the
Secret and the ConfigMap <cluster>-cluster-values. cluster-apps-operator writes these as
well: beside it, set --values-name proxy-values --systemd-name machine-proxies, and name
them in the spec.extraConfigs of Apps and in KubeadmConfigs. A Secret beside a Cluster
holds its own settings:

  kubectl create secret generic prod-proxy-override --from-literal=direct=true
  kubectl label secret prod-proxy-override causewayproject.github.io/proxy-override=

It takes the keys of the installation's Secret, direct and ownList (true or false),
containerd (installation or computed) and credentials (everywhere, machines or nowhere). It
becomes the Cluster's, for clusterctl move. If it is gone, what was written by it stays; to end
its settings, set direct to false and no other key.
Events report settings that can't be used or have no effect, an override without the label
among them, and objects that are in the way. The process answers on /healthz, /readyz and /metrics (Prometheus' text).`

const example = `  kubectl -n proxy-propagator create secret generic installation-proxy \
    --from-literal=HTTP_PROXY=http://user:p%40ss@proxy.example.com:3128 \
    --from-literal=HTTPS_PROXY=http://user:p%40ss@proxy.example.com:3128 \
    --from-literal=NO_PROXY=172.16.0.0/16,internal.example.com
  causeway propagator --kubeconfig management.conf --installation proxy-propagator/installation-proxy`

// Command returns the command.
func Command() *cobra.Command {
	f := new(flags)
	cmd := &cobra.Command{
		Use:     "propagator",
		Short:   "keep the proxy settings of all Clusters current, for machines and charts",
		Long:    long,
		Example: example,
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.Require(cmd, "managed-by"); err != nil {
				return err
			}
			if err := f.manager.Check(); err != nil {
				return err
			}
			r, err := f.reconciler()
			if err != nil {
				return err
			}
			return f.program(r).Run(cmd.Context(), f.log.New(cmd.ErrOrStderr()))
		},
	}
	f.add(cmd)
	return cmd
}

type flags struct {
	manager                         management.Flags
	credentials, containerd, layout string
	facts                           noproxy.Cluster
	config                          propagate.Config
	log                             logs.Flags
}

func (f *flags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	f.log.Add(set)
	f.manager.Add(set, 8, "127.0.0.1:8083")
	set.StringVar(&f.config.Installation, "installation", "proxy-propagator/installation-proxy", "`namespace/name` of the Secret with the installation's proxies")
	set.StringVar(&f.config.ManagedBy, "managed-by", "causeway", "`value` of the label giantswarm.io/managed-by; objects with another one are left alone")
	command.Choice(cmd, &f.credentials, "credentials", "everywhere", "where the proxies' credentials go; with machines, chart-operator and others without --env-secret use the proxy without them", "everywhere", "machines", "nowhere")
	command.Choice(cmd, &f.containerd, "containerd", "computed", "the list that containerd gets: computed for the cluster, or only the installation's", "computed", "installation")
	set.StringVar(&f.config.EnvSecret, "env-secret", "", "`name` of a Secret in the workload cluster, to which the pods of external-dns-app and cert-manager-app refer, instead of having the proxies; chart-operator can't")
	command.Choice(cmd, &f.layout, "values-layout", "charts", "where the values are: as charts of today read them, or as in Giant Swarm's RFC", "charts", "rfc")
	set.StringVar(&f.config.ValuesName, "values-name", "cluster-values", "`name` behind the Cluster's and a dash, of the Secret and the ConfigMap with values")
	set.StringVar(&f.config.SystemdName, "systemd-name", "systemd-proxy", "`name` behind the Cluster's and a dash, of the Secret for machines")
	set.Var((*cli.List)(&f.facts.NodeCIDRs), "node-cidr", "`network` of the Clusters' nodes, which static pods have to reach; several are allowed")
	set.Var((*cli.List)(&f.facts.ServiceCIDRs), "service-cidr", "`network` of Services in Clusters without spec.clusterNetwork.services; several are allowed; default kubeadm's 10.96.0.0/12, with an Event")
	set.Var((*cli.List)(&f.facts.PodCIDRs), "pod-cidr", "`network` of pods in Clusters without spec.clusterNetwork.pods; several are allowed; without, their addresses are reached through the proxy")
	command.Choice(cmd, (*string)(&f.facts.Cloud), "cloud", "", "the cloud that the Clusters are in", "aws", "gcp", "azure", "openstack")
	set.StringVar(&f.facts.Region, "region", "", "`name` of the cloud's region, which aws needs")
}

// reconciler is what the flags say.
func (f *flags) reconciler() (*controllers.ProxyReconciler, error) {
	r := &controllers.ProxyReconciler{Config: f.config, Namespaces: f.manager.Namespaces}
	namespace, name, _ := strings.Cut(f.config.Installation, "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, cli.Mistake("--installation %q is not NAMESPACE/NAME", f.config.Installation)
	}
	r.Config.Credentials = proxyconfig.Credentials(slices.Index([]string{"everywhere", "machines", "nowhere"}, f.credentials))
	if f.layout == "rfc" {
		r.Config.Layout = proxyconfig.LayoutRFC
	}
	r.Config.ContainerdInstallation = f.containerd == "installation"
	if _, err := f.facts.List(); err != nil {
		return nil, cli.FieldMistake(err, "noproxy: cluster: NodeCIDRs", "--node-cidr", "noproxy: cluster: ServiceCIDRs", "--service-cidr",
			"noproxy: cluster: PodCIDRs", "--pod-cidr", "noproxy: cluster: Region", "--region")
	}
	r.Facts = func(_ *unstructured.Unstructured, facts *noproxy.Cluster) {
		facts.NodeCIDRs, facts.Cloud, facts.Region = slices.Clone(f.facts.NodeCIDRs), f.facts.Cloud, f.facts.Region
		if len(facts.ServiceCIDRs) == 0 {
			facts.ServiceCIDRs = slices.Clone(f.facts.ServiceCIDRs)
		}
		if len(facts.PodCIDRs) == 0 {
			facts.PodCIDRs = slices.Clone(f.facts.PodCIDRs)
		}
	}
	return r, cli.FieldMistake(r.Check(), "propagate: Config.ManagedBy", "--managed-by",
		"propagate: Config.ValuesName", "--values-name", "propagate: Config.SystemdName", "--systemd-name", "propagate: Config.EnvSecret", "--env-secret")
}

func (f *flags) program(r *controllers.ProxyReconciler) management.Program {
	return management.Program{Flags: f.manager, Name: program, LeaseName: program + "-" + f.config.ManagedBy, Setup: r.SetupWithManager}
}
