// Package proxyconfig is the command that prints what carries the proxy configuration of
// a cluster.
package proxyconfig

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
)

const long = `Prints what carries the proxy configuration of a cluster, in the form that its reader
takes (--format):

  env         exports for a POSIX shell
  docker-env  a file for docker run --env-file and kubectl create --from-env-file
  systemd     a drop-in, for containerd, kubelet or any service
  kubeadm     files and preKubeadmCommands of a KubeadmConfig, with the drop-in of the
              Secret below; --static-pods adds what kubeadm and static pods need
  values      ConfigMap and Secrets of Giant Swarm's cluster apps
  docker      config.json of the docker client
  jvm         arguments of java, as java @file takes them

Flags or a YAML file (--file) describe the cluster; flags change single settings of the
file, and only the file has the user's:

  name: prod
  namespace: default
  installation: {http: ..., https: ..., noProxy: ...}
  cluster: {pods: [...], services: [...], nodes: [...], controlPlane: [...], domain: ..., cloud: ..., region: ..., layout: merged}
  user: {http: ..., https: ..., noProxy: ..., direct: false, ownList: false}

The section proxy: {http: ..., https: ..., noProxy: ...} of charts' values, at the top or
below cluster or global.connectivity, is another way to write installation.

Passwords are better off in the file or in variables than in flags, which other users of
the machine see. They are printed, of course: the output is a secret, but for that of
kubeadm without extra-envs-with-credentials. Standard error tells where the reader
takes the list in another way than Go (--lint, and the format jvm), which of its entries cover nothing, and what static
pods could not reach (--static-pods).

How static pods get the variables (--static-pods), for machines of a control plane:

  none                         they get none
  environment                  kubeadm gets them, and copies them; not for etcd
  patches                      kubeadm's patches, from the Secret
  extra-envs                   plain text, without user name and password; needs
                               Kubernetes 1.31 or newer
  extra-envs-with-credentials  the same, with user name and password in plain text

Static pods need --nodes, --services, --pods and --control-plane, or a propagator with
--node-cidr: without the nodes' networks the cluster may not start.`

const example = `  $ export CAUSEWAY_PROXYCONFIG_HTTPS=http://user:p%40ss@proxy.example.com:3128
  $ causeway proxyconfig --no-proxy internal.example.com --pods 10.244.0.0/16 --services 10.96.0.0/12 --format systemd
  [Service]
  Environment="HTTPS_PROXY=http://user:p%%40ss@proxy.example.com:3128"
  ...`

var formats = []string{"env", "docker-env", "systemd", "kubeadm", "values", "docker", "jvm"}

// Command returns the command.
func Command() *cobra.Command {
	var o options
	s := new(spec)
	cmd := &cobra.Command{
		Use:     "proxyconfig",
		Short:   "print a cluster's proxy configuration, in one of seven formats",
		Long:    long,
		Example: example,
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.readFile(s)
			if err != nil {
				return err
			}
			return o.run(s, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	set := cmd.Flags()
	o.flags = set
	command.Choice(cmd, &o.format, "format", "env", "what to print", formats...)
	set.StringVar(&o.file, "file", "", "YAML `file` of what flags say otherwise")
	command.Choice(cmd, &o.credentials, "credentials", "everywhere", "of values: who gets them", "everywhere", "machines", "nowhere")
	command.Choice(cmd, &o.containerd, "containerd-list", "computed", "of values: the list for containerd", "computed", "installation")
	set.StringVar(&o.envSecret, "env-secret", "", "of values: `name` of a Secret in the workload cluster to which pods of external-dns-app and cert-manager-app refer")
	command.Choice(cmd, &o.valuesLayout, "values-layout", "charts", "of values: as charts of today read them, or as in Giant Swarm's RFC", "charts", "rfc")
	set.StringVar(&o.valuesName, "values-name", "cluster-values", "of values: `name` of the ConfigMap and the Secret, behind the cluster's and a dash")
	set.StringVar(&o.systemdName, "systemd-name", "systemd-proxy", "of values and kubeadm: `name` of the Secret for machines, behind the cluster's and a dash")
	set.Var(&o.units, "unit", "of kubeadm: `service` that gets the drop-in, such as crio, docker or kubelet; several are allowed; default containerd")
	command.Choice(cmd, &o.staticPods, "static-pods", "none", "of kubeadm: how static pods get the variables", staticPods...)
	set.Var(&o.lint, "lint", "`consumer` to check the list for, such as curl; several are allowed")
	command.Complete(cmd, "lint", command.Consumers()...)
	s.flags(cmd)
	return cmd
}

// options are the flags that are not part of the file.
type options struct {
	format, file, credentials, containerd, envSecret, staticPods string
	valuesLayout, valuesName, systemdName                        string
	units, lint                                                  cli.List
	flags                                                        *pflag.FlagSet
}

func (o options) run(s *spec, stdout, stderr io.Writer) error {
	layers, err := s.layers()
	if err != nil {
		return err
	}
	merged, err := layers.Merge()
	if err != nil {
		return o.fieldError(err)
	}
	text, findings, err := render(o, s, layers, merged)
	if err != nil {
		return o.fieldError(err)
	}
	for _, name := range o.lint {
		consumer, err := noproxy.ParseConsumer(name)
		if err != nil {
			return cli.Mistake("--lint: %v", err)
		}
		findings = append(findings, merged.Lint(consumer)...)
	}
	if _, err := (noproxy.Options{Strict: true}).Parse(merged.NoProxy); err != nil {
		fmt.Fprintf(stderr, "the list has entries that cover nothing:\n%s\n", printable.Lines(err.Error(), 64<<10))
	}
	for _, f := range findings {
		fmt.Fprintln(stderr, printable.Quote(fmt.Sprint(f)))
	}
	_, err = io.WriteString(stdout, text)
	return err
}

// fieldError names the flag, or the key of the file that the field is from.
func (o options) fieldError(err error) error {
	names := append([]string{
		"proxyconfig: Installation.HTTPProxy", "--http", "proxyconfig: Installation.HTTPSProxy", "--https",
		"proxyconfig: Installation.NoProxy", "--no-proxy", "proxyconfig: User.HTTPProxy", "--file: user.http",
		"proxyconfig: User.HTTPSProxy", "--file: user.https", "proxyconfig: User.NoProxy", "--file: user.noProxy",
		"proxyconfig: HTTPProxy", "--http", "proxyconfig: HTTPSProxy", "--https", "proxyconfig: NoProxy", "--no-proxy",
		"proxyconfig: Namespace", "--namespace", "proxyconfig: Name", "--name",
		"proxyconfig: EnvSecret", "--env-secret", "proxyconfig: ValuesName", "--values-name", "proxyconfig: SystemdName", "--systemd-name", "proxyconfig: Units", "--unit",
	}, command.ClusterFlags...)
	if o.file == "" {
		return cli.FieldMistake(err, names...)
	}
	for i := 1; i < len(names); i += 2 {
		flag := strings.TrimPrefix(names[i], "--")
		if key := fileKeys[flag]; key != "" && !o.flags.Changed(flag) {
			names[i] = "--file: " + key
		}
	}
	return errors.New(cli.FieldMistake(err, names...).Error())
}

// fileKeys are the keys of the file that flags change.
var fileKeys = map[string]string{
	"http": "installation.http", "https": "installation.https", "no-proxy": "installation.noProxy",
	"name": "name", "namespace": "namespace", "pods": "cluster.pods", "services": "cluster.services", "nodes": "cluster.nodes",
	"control-plane": "cluster.controlPlane", "domain": "cluster.domain", "region": "cluster.region",
}

// readFile returns the file's spec, changed by that of the flags.
func (o options) readFile(flags *spec) (*spec, error) {
	if o.file == "" {
		return flags, nil
	}
	text, err := os.ReadFile(o.file)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	base, err := read(text)
	if err != nil {
		return nil, err
	}
	return base, base.change(*flags)
}

// byFormat has the renderings that need only the configuration.
var byFormat = map[string]func(proxyconfig.Config) (string, error){
	"env":        proxyconfig.Config.ShellExports,
	"docker-env": proxyconfig.Config.DockerEnvFile,
	"systemd":    proxyconfig.Config.SystemdDropIn,
	"docker":     proxyconfig.Config.DockerConfig,
}

func render(o options, s *spec, layers proxyconfig.Layers, merged *proxyconfig.Merged) (string, []noproxy.Finding, error) {
	if s.Name == "" && (o.format == "kubeadm" || o.format == "values") {
		return "", nil, cli.Mistake("--name must be set for --format %s", o.format)
	}
	switch o.format {
	case "jvm":
		return merged.JVMArguments()
	case "kubeadm":
		return kubeadm(o, s, merged)
	case "values":
		text, err := values(o, s, layers, merged)
		return text, nil, err
	}
	text, err := byFormat[o.format](merged.Config)
	return text, nil, err
}

// staticPods are the ways of --static-pods.
var staticPods = []string{"none", "environment", "patches", "extra-envs", "extra-envs-with-credentials"}

// kubeadm has no credentials, unless extraEnvs are asked for with them: they are
// in the Secret that it refers to.
func kubeadm(o options, s *spec, merged *proxyconfig.Merged) (string, []noproxy.Finding, error) {
	way := proxyconfig.StaticPods(slices.Index(staticPods, o.staticPods))
	secret := proxyconfig.ClusterValues{Name: s.Name, Namespace: "default", SystemdName: o.systemdName}
	if _, err := secret.Build(); err != nil { // checks the names
		return "", nil, err
	}
	k := proxyconfig.Kubeadm{Secret: secret.SystemdSecret(), Units: o.units, StaticPods: way, Config: merged.Config}
	built, err := k.Build()
	if err != nil {
		return "", nil, err
	}
	text, err := yaml.Marshal(built)
	return string(text), merged.LintStaticPods(way), err
}

// values are manifests for the management cluster.
func values(o options, s *spec, layers proxyconfig.Layers, merged *proxyconfig.Merged) (string, error) {
	v := proxyconfig.ClusterValues{Name: s.Name, Namespace: cmp.Or(s.Namespace, "default"), Config: merged.Config, EnvSecret: o.envSecret, ValuesName: o.valuesName, SystemdName: o.systemdName}
	if o.valuesLayout == "rfc" {
		v.Layout = proxyconfig.LayoutRFC
	}
	v.Credentials = proxyconfig.Credentials(slices.Index([]string{"everywhere", "machines", "nowhere"}, o.credentials))
	if o.containerd == "installation" {
		v.ContainerdNoProxy = layers.Installation.NoProxy
	}
	if len(s.Cluster.Pods) > 0 {
		v.PodCIDR = s.Cluster.Pods[0]
	}
	if len(s.Cluster.Services) > 0 {
		v.ServiceCIDR = s.Cluster.Services[0]
	}
	objects, err := v.Build()
	if err != nil {
		return "", err
	}
	var documents []string
	for _, object := range []any{objects.ConfigMap, objects.Secret, objects.SystemdProxy} {
		text, err := yaml.Marshal(object)
		if err != nil {
			return "", err
		}
		documents = append(documents, string(text))
	}
	return strings.Join(documents, "---\n"), nil
}
