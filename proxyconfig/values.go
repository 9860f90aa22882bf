package proxyconfig

import (
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Names of Giant Swarm's cluster apps.
const (
	// ValuesKey is the key of both objects <cluster>-cluster-values.
	ValuesKey = "values"
	// ContainerdKey is the key of the Secret <cluster>-systemd-proxy with the
	// drop-in. The others are for kubeadm, see [StaticPods].
	ContainerdKey = "containerdProxy"

	labelCluster    = "giantswarm.io/cluster"
	labelManagedBy  = "giantswarm.io/managed-by"
	annotationNotes = "giantswarm.io/notes"
)

// ClusterValues is what makes the objects from which Giant Swarm's cluster apps
// take a cluster's proxy configuration. The objects' names are made only of
// cluster and namespace, so another operator must not write them too.
type ClusterValues struct {
	// Name and Namespace are those of the Cluster. Required.
	Name, Namespace string

	// Config is the cluster's configuration, mostly that of a [Merged]. It has to
	// be valid.
	Config Config

	// ContainerdNoProxy is the list for containerd. If "", it is Config.NoProxy.
	// Giant Swarm's RFC shows only the installation's list; with that, a registry
	// within the cluster would be reached through the proxy.
	ContainerdNoProxy string

	// Credentials is where the user info of the URLs may go. The zero value is
	// CredentialsEverywhere.
	Credentials Credentials

	// EnvSecret is the name of a Secret in the workload cluster, with the keys of
	// [Config.EnvSecretData], to which the values' env: refers. If "", env: has
	// the values.
	EnvSecret string

	// PodCIDR, ServiceCIDR and DNSIP are facts of the cluster for the ConfigMap.
	// Empty ones are left out.
	PodCIDR, ServiceCIDR, DNSIP string

	// ManagedBy is the value of the label giantswarm.io/managed-by. If "", it is
	// causeway.
	ManagedBy string
}

// Credentials says where the user info of proxy URLs may go.
type Credentials int

const (
	// CredentialsEverywhere is the values of apps, the machines' drop-in and what
	// kubeadm gets, as Giant Swarm has it: the right to read Secrets or pods of the
	// workload cluster is the right to read them.
	CredentialsEverywhere Credentials = iota
	// CredentialsOnMachines is only the drop-in: root of the cluster's machines
	// reads them, and users with the right to run systemctl there. What kubeadm
	// gets has none, as it would write them into pods.
	CredentialsOnMachines
	// CredentialsNowhere leaves them out: for a proxy that knows clusters by
	// their addresses, or one nearby that adds the credentials.
	CredentialsNowhere
)

// ClusterObjects are what [ClusterValues.Build] returns. Those with credentials
// are Secrets; the ConfigMap never has any.
type ClusterObjects struct {
	ConfigMap    *corev1.ConfigMap // <cluster>-cluster-values
	Secret       *corev1.Secret    // <cluster>-cluster-values
	SystemdProxy *corev1.Secret    // <cluster>-systemd-proxy
}

// String tells nothing of what the objects hold.
func (o ClusterObjects) String() string { return "proxyconfig.ClusterObjects{(redacted)}" }

// Format writes String, whatever the verb.
func (o ClusterObjects) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, o.String()) }

// MarshalText returns String: JSON and logs hold no secret. The objects marshal
// one by one.
func (o ClusterObjects) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// SystemdSecret returns the name of the Secret SystemdProxy of [ClusterObjects], for
// [Kubeadm].
func (v ClusterValues) SystemdSecret() string { return v.Name + "-systemd-proxy" }

// Build returns the objects, the same bytes for the same values. It sends
// nothing anywhere. An error wraps a [*FieldError] for each field that can't be
// used.
func (v ClusterValues) Build() (*ClusterObjects, error) {
	if err := v.validate(); err != nil {
		return nil, err
	}
	onMachines := v.Config
	if v.ContainerdNoProxy != "" {
		onMachines.NoProxy = v.ContainerdNoProxy
	}
	inApps := v.Config.WithoutCredentials()
	switch v.Credentials {
	case CredentialsEverywhere:
		inApps = v.Config
	case CredentialsNowhere:
		onMachines = onMachines.WithoutCredentials()
	}
	dropIn, err := onMachines.SystemdDropIn()
	if err != nil {
		return nil, err
	}
	public, err := yaml.Marshal(v.configMapValues())
	if err != nil {
		return nil, fmt.Errorf("proxyconfig: values: %w", err)
	}
	private, err := yaml.Marshal(secretValues(inApps, v.EnvSecret))
	if err != nil {
		return nil, fmt.Errorf("proxyconfig: values: %w", err)
	}
	// kubeadm writes them into pods and a DaemonSet of the workload cluster.
	machine, err := inApps.staticPodKeys()
	if err != nil {
		return nil, err
	}
	machine[ContainerdKey] = []byte(dropIn)
	values := v.Name + "-cluster-values"
	return &ClusterObjects{
		ConfigMap: &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: v.objectMeta(values), Data: map[string]string{ValuesKey: string(public)},
		},
		Secret:       v.newSecret(values, map[string][]byte{ValuesKey: private}),
		SystemdProxy: v.newSecret(v.SystemdSecret(), machine),
	}, nil
}

func (v ClusterValues) validate() error {
	errs := []error{prefixFields("Config", v.Config.Validate()), fieldError("ContainerdNoProxy", checkList(v.ContainerdNoProxy))}
	for _, f := range []struct {
		field, value string
		check        func(string) []string
	}{
		{"Name", v.Name + "-cluster-values", validation.IsDNS1123Subdomain},
		{"Name", v.Name, validation.IsValidLabelValue},
		{"Namespace", v.Namespace, validation.IsDNS1123Label},
		{"ManagedBy", v.managedBy(), validation.IsValidLabelValue},
	} {
		if reasons := f.check(f.value); len(reasons) > 0 && (f.field != "Name" || v.Name != "") {
			errs = append(errs, fieldErrorf(f.field, "%s", strings.Join(reasons, "; ")))
		}
	}
	if v.Name == "" {
		errs = append(errs, fieldErrorf("Name", "required"))
	}
	if v.EnvSecret != "" && len(validation.IsDNS1123Subdomain(v.EnvSecret)) > 0 {
		errs = append(errs, fieldErrorf("EnvSecret", "not the name of a Secret"))
	}
	if v.Credentials < CredentialsEverywhere || v.Credentials > CredentialsNowhere {
		errs = append(errs, fieldErrorf("Credentials", "unknown"))
	}
	return errors.Join(errs...)
}

func (v ClusterValues) managedBy() string {
	if v.ManagedBy == "" {
		return "causeway"
	}
	return v.ManagedBy
}

func (v ClusterValues) objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: v.Namespace,
		Labels:      map[string]string{labelCluster: v.Name, labelManagedBy: v.managedBy()},
		Annotations: map[string]string{annotationNotes: "DO NOT EDIT. Values managed by " + v.managedBy() + "."},
	}
}

func (v ClusterValues) newSecret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: v.objectMeta(name), Type: corev1.SecretTypeOpaque, Data: data,
	}
}

// String returns v without its secrets.
func (v ClusterValues) String() string {
	return fmt.Sprintf("proxyconfig.ClusterValues{Name: %q, Namespace: %q, Config: %s}", v.Name, v.Namespace, v.Config)
}

// Format writes String, whatever the verb.
func (v ClusterValues) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, v.String()) }

// MarshalText returns String: JSON and logs hold no secret.
func (v ClusterValues) MarshalText() ([]byte, error) { return []byte(v.String()), nil }
