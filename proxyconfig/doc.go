// Package proxyconfig renders one proxy configuration for everything that must
// carry it: containerd and the kubelet, pods, static pods, kubeadm, charts, shells,
// docker and Java.
//
//	merged, err := proxyconfig.Layers{
//		Installation: proxyconfig.Config{
//			HTTPProxy:  "http://user:p%40ssword@proxy.example.com:3128",
//			HTTPSProxy: "http://user:p%40ssword@proxy.example.com:3128",
//			NoProxy:    "internal.example.com",
//		},
//		Cluster: noproxy.Cluster{PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/12"}},
//	}.Merge()
//	...
//	dropIn, err := merged.SystemdDropIn()
//
// A [Config] is three values, which [Config.Validate] checks once. A rendering's
// reader gets what is valid unchanged, or the rendering is refused by a
// [*FieldError], where a tool has no way to read it. A password that is not
// percent-encoded is refused, and never repaired: programs would differ about
// where it ends. net/url's UserPassword encodes one.
//
// A proxy's port belongs into its URL: without one Go and Python take 80 for
// http, and curl takes 1080.
//
// # For a cluster
//
// [Layers] are the installation's configuration, what package noproxy computes
// for the cluster, and what its owner wants otherwise, in one place. [Merged]
// says of each value where it is from. [ClusterValues] makes the ConfigMap and
// the Secrets that Giant Swarm's cluster apps read, [Kubeadm] the part of a
// KubeadmConfig that puts the drop-in onto machines, has the services take it, and
// gives the variables to kubeadm and static pods.
//
// The tests boot systemd with machines that cloud-init and Ignition's files make,
// as Cluster API renders them, and read the environment of a running containerd;
// kubeadm itself renders the static pods. A machine that lives keeps what it was
// made with.
//
// # Formats and their readers
//
//	Config.Env, EnvVars, EnvVarsFrom   pods, and other users of variables
//	Injector, package webhook          pods that others make
//	Config.ShellExports                POSIX shells
//	Config.DockerEnvFile               docker run --env-file, kubectl; no quotes
//	Config.SystemdDropIn               containerd, the kubelet, any service
//	Config.DockerConfig                what the docker client starts and builds
//	Config.JVMArguments                java @file
//
// They read the list in different ways: [Config.Lint] reports the differences.
//
// # Readers of the credentials
//
// A proxy's credentials in a cluster are known to its administrators. With the
// values as Giant Swarm has them that is everyone with the right to
//
//   - read Secrets of the Cluster's namespace in the management cluster;
//   - read Secrets, Deployments or pods of a chart that takes them, in the
//     workload cluster: they are values of variables there. cert-manager-app from 4.0.1
//     has them in a ConfigMap of kube-system;
//   - run a container in such a pod, or exec into it;
//   - be root on a machine, read its user data where a cloud shows it, or run
//     systemctl show there, which takes no privileges.
//
// ClusterValues.Credentials takes charts out of it ([CredentialsOnMachines]): containerd
// has them, and charts get the proxies without. Pods that need them get them by
// [Config.EnvVarsFrom] from a Secret that is made where it is needed; by
// ClusterValues.EnvSecret, external-dns-app and cert-manager-app do too. chart-operator
// has variables with values, and can't: a proxy that wants credentials refuses it then.
// Use [CredentialsNowhere] for a proxy that knows clusters by their addresses, or
// for one nearby which adds the credentials. Give each cluster credentials of its
// own, by Layers.User, so that one can be taken back.
//
// Our ConfigMap, the entries for kubeadm, errors, findings, and what the types of
// this package print hold none. A [Var] and the renderings do.
package proxyconfig
