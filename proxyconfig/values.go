package proxyconfig

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/internal/secretname"
)

// Names of Giant Swarm's cluster apps.
const (
	// ValuesKey is the key of the ConfigMap and of the Secret with values.
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
// cluster and namespace, so another operator must not write them too: beside
// cluster-apps-operator, set ValuesName and, where it has a proxy, SystemdName.
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

	// EnvSecret is the name of a Secret of the workload cluster, in the namespace of
	// the pods, with the keys of [Config.EnvSecretData]. The variables of external-dns-app
	// and of cert-manager-app refer to it then, in place of having the values;
	// chart-operator can't refer to a Secret. Their pods wait for it. If "", the
	// values are in the charts' manifests.
	EnvSecret string

	// PodCIDR and ServiceCIDR are networks of the cluster for the ConfigMap, which
	// also gets the address of the DNS: the tenth of ServiceCIDR, as kubeadm and others
	// have it. Empty ones are left out.
	PodCIDR, ServiceCIDR string

	// Layout is where the keys are. The zero value is LayoutCharts.
	Layout Layout

	// ValuesName follows the cluster's name and a dash in the names of the ConfigMap
	// and the Secret with values, SystemdName in that of the Secret SystemdProxy. If "",
	// they are cluster-values and systemd-proxy, as cluster-apps-operator has them. An
	// App takes objects with other names by its spec.extraConfigs; chart-operator's
	// does not, as cluster-apps-operator puts its spec back.
	ValuesName, SystemdName string

	// ManagedBy is the value of the label giantswarm.io/managed-by. If "", it is
	// causeway.
	ManagedBy string
}

// Layout is where charts find the keys.
type Layout int

const (
	// LayoutCharts is the one that charts of today read: all keys of the ConfigMap are
	// below cluster:, and the Secret has them for each chart.
	//
	//	cluster.proxy.http, .https, .noProxy       chart-operator, cert-manager-app from 4.0.1,
	//	                                           kyverno-policies-connectivity, cluster-autoscaler-app
	//	cluster.proxy.httpProxy, .httpsProxy       what follows the RFC
	//	global.connectivity.proxy                  cluster, from 8
	//	http_proxy, https_proxy, no_proxy          cert-manager-app 3
	//	env                                        external-dns-app
	//	cert-manager.extraEnv and two more         cert-manager-app from 4.0.0, with EnvSecret only
	//
	// A chart's own proxy.http, .https and .noProxy come before cluster.proxy: they
	// are for users, and are not written. chart-operator and cluster-autoscaler-app
	// take none of the three unless all are set.
	LayoutCharts Layout = iota
	// LayoutRFC is the example of Giant Swarm's RFC, and nothing else: calico, kubernetes and
	// proxy.noProxy are at the top of the ConfigMap, and the Secret has
	// cluster.proxy.httpProxy and .httpsProxy. Charts of today read none of it but
	// proxy.noProxy.
	LayoutRFC
)

// Credentials says where the user info of proxy URLs may go.
type Credentials int

const (
	// CredentialsEverywhere is the values of apps, the machines' drop-in and what
	// kubeadm gets, as Giant Swarm has it: the right to read Secrets or pods of the
	// workload cluster is the right to read them.
	CredentialsEverywhere Credentials = iota
	// CredentialsOnMachines is only the drop-in: root of the cluster's machines
	// reads them, and users with the right to run systemctl there. What kubeadm
	// gets has none, as it would write them into pods. Charts get the proxies without:
	// a proxy that wants credentials refuses what has no EnvSecret, such as
	// chart-operator.
	CredentialsOnMachines
	// CredentialsNowhere leaves them out: for a proxy that knows clusters by
	// their addresses, or one nearby that adds the credentials.
	CredentialsNowhere
)

// ClusterObjects are what [ClusterValues.Build] returns. Those with credentials
// are Secrets; the ConfigMap never has any.
type ClusterObjects struct {
	ConfigMap    *corev1.ConfigMap // <cluster>-cluster-values, or as ValuesName says
	Secret       *corev1.Secret    // of the same name
	SystemdProxy *corev1.Secret    // <cluster>-systemd-proxy, or as SystemdName says
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
func (v ClusterValues) SystemdSecret() string {
	return v.Name + "-" + cmp.Or(v.SystemdName, defaultSystemdName)
}

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
	private, err := yaml.Marshal(v.secretValues(inApps))
	if err != nil {
		return nil, errors.New("proxyconfig: values: not YAML")
	}
	// kubeadm writes them into pods and a DaemonSet of the workload cluster.
	machine, err := inApps.staticPodKeys()
	if err != nil {
		return nil, err
	}
	machine[ContainerdKey] = []byte(dropIn)
	size := 0
	for _, value := range machine {
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		return nil, fieldErrorf("Config.NoProxy", "%d bytes: the Secret %s would hold %d bytes, more than the %d that fit; write fewer or larger networks", len(v.Config.NoProxy), v.SystemdSecret(), size, corev1.MaxSecretSize)
	}
	values := v.Name + "-" + v.valuesName()
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
		{"Name", v.Name + "-" + defaultSystemdName, validation.IsDNS1123Subdomain},
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
	systemd := cmp.Or(v.SystemdName, defaultSystemdName)
	errs = append(errs, v.checkEnd("ValuesName", v.valuesName(), defaultValuesName, ""), v.checkEnd("SystemdName", systemd, defaultSystemdName, v.valuesName()))
	switch {
	case v.EnvSecret == "":
	case len(validation.IsDNS1123Subdomain(v.EnvSecret)) > 0:
		errs = append(errs, fieldErrorf("EnvSecret", "not the name of a Secret"))
	case v.Layout == LayoutRFC:
		errs = append(errs, fieldErrorf("EnvSecret", "LayoutRFC has no key that refers to a Secret"))
	}
	switch v.Layout {
	case LayoutCharts:
		errs = append(errs, fieldError("Config.NoProxy", checkUnquoted(v.Config.NoProxy)))
	case LayoutRFC:
	default:
		errs = append(errs, fieldErrorf("Layout", "unknown"))
	}
	if v.Credentials < CredentialsEverywhere || v.Credentials > CredentialsNowhere {
		errs = append(errs, fieldErrorf("Credentials", "unknown"))
	}
	return errors.Join(errs...)
}

const (
	defaultValuesName  = "cluster-values"
	defaultSystemdName = "systemd-proxy"
)

// checkEnd refuses what no name can end in, and the ends of other Secrets' names:
// one may be that of another Cluster.
func (v ClusterValues) checkEnd(field, end, byDefault, other string) error {
	taken := secretname.Taken("-"+end) != ""
	if end == other || taken && end != byDefault || len(validation.IsDNS1123Subdomain(end)) > 0 || len(v.Name)+1+len(end) > validation.DNS1123SubdomainMaxLength {
		return fieldErrorf(field, "not what a name can end in, or the end of another Secret's of a Cluster; want one such as proxy-values or machine-proxies")
	}
	return nil
}

func (v ClusterValues) valuesName() string { return cmp.Or(v.ValuesName, defaultValuesName) }

func (v ClusterValues) managedBy() string { return cmp.Or(v.ManagedBy, "causeway") }

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

// configMapValues are our values of the ConfigMap. Of the proxy it has only the list.
func (v ClusterValues) configMapValues() map[string]any {
	document := map[string]any{}
	section := document
	if v.Layout == LayoutCharts {
		section = map[string]any{}
		document["cluster"] = section
	}
	setValue(section, v.PodCIDR, "calico", "CIDR")
	setValue(section, v.ServiceCIDR, "kubernetes", "API", "clusterIPRange")
	setValue(section, dnsAddress(v.ServiceCIDR), "kubernetes", "DNS", "IP")
	setValue(section, v.Config.NoProxy, "proxy", "noProxy")
	return document
}

// dnsAddress is the tenth address of the network, or "".
func dnsAddress(cidr string) string {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return ""
	}
	addr := p.Masked().Addr()
	for range 10 {
		addr = addr.Next()
	}
	if !p.Contains(addr) {
		return ""
	}
	return addr.String()
}

// secretValues are our values of the Secret, with the configuration of charts.
func (v ClusterValues) secretValues(c Config) map[string]any {
	document := map[string]any{}
	setValue(document, c.HTTPProxy, "cluster", "proxy", "httpProxy")
	setValue(document, c.HTTPSProxy, "cluster", "proxy", "httpsProxy")
	if v.Layout == LayoutRFC {
		return document
	}
	setValue(document, c.HTTPProxy, "cluster", "proxy", "http")
	setValue(document, c.HTTPSProxy, "cluster", "proxy", "https")
	setValue(document, c.NoProxy, "cluster", "proxy", "noProxy")
	if c.HTTPProxy+c.HTTPSProxy != "" {
		setValue(document, true, "global", "connectivity", "proxy", "enabled")
	}
	setValue(document, c.HTTPProxy, "global", "connectivity", "proxy", "httpProxy")
	setValue(document, c.HTTPSProxy, "global", "connectivity", "proxy", "httpsProxy")
	setValue(document, c.NoProxy, "global", "connectivity", "proxy", "noProxy")
	setValue(document, c.HTTPProxy, "http_proxy")
	setValue(document, c.HTTPSProxy, "https_proxy")
	setValue(document, c.NoProxy, "no_proxy")
	vars := c.EnvVars()
	if v.EnvSecret != "" {
		vars = c.EnvVarsFrom(v.EnvSecret, true)
	}
	vars = slices.DeleteFunc(vars, func(e corev1.EnvVar) bool { return lower[e.Name] == "" }) // upper case only
	if len(vars) > 0 {
		document["env"] = vars
	}
	if v.EnvSecret != "" && len(vars) > 0 {
		extra := map[string]any{"extraEnv": vars}
		document["cert-manager"] = map[string]any{"extraEnv": vars, "webhook": extra, "cainjector": extra}
	}
	return document
}

// setValue sets the value at the path, unless it is an empty text.
func setValue(document map[string]any, value any, path ...string) {
	if value == "" {
		return
	}
	for _, key := range path[:len(path)-1] {
		next, ok := document[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			document[key] = next
		}
		document = next
	}
	document[path[len(path)-1]] = value
}

// checkUnquoted refuses a list that reaches no reader of a chart as it is: chart-operator
// and others write it into their manifests without quotes.
func checkUnquoted(list string) error {
	var read map[string]any
	if list == "" || yaml.Unmarshal([]byte("list: "+list), &read) == nil && read["list"] == any(list) {
		return nil
	}
	reason := "charts write it into their manifests without quotes, where YAML reads something else"
	if strings.HasSuffix(list, ":") {
		return errors.New(reason + "; write an address that ends in :: with its mask, such as fd00::/128")
	}
	return errors.New(reason + "; it may not begin with *, !, &, %, [, { or a space, and have no : or # beside a space")
}
