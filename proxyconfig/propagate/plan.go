package propagate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/causewayproject/causeway/noproxy"
	"github.com/causewayproject/causeway/proxyconfig"
)

// Config is the installation's.
type Config struct {
	// Installation is the namespace/name of the Secret with the installation's
	// proxies. Required.
	Installation string
	// ManagedBy is the value of the label giantswarm.io/managed-by. Objects with
	// another one, or without, are not written. The label is no proof that an object is
	// ours: see the package's comment. "causeway" if empty.
	ManagedBy string
	// Credentials is where the user info of the proxies may go. An override may
	// narrow that. The zero value is CredentialsEverywhere.
	Credentials proxyconfig.Credentials
	// ContainerdInstallation gives containerd the list that people wrote, and not
	// the one that is computed for the cluster, unless they wrote none.
	ContainerdInstallation bool
	// EnvSecret is ClusterValues.EnvSecret: a Secret of the workload cluster.
	EnvSecret string
	// Layout is where charts find the keys. The zero value is LayoutCharts.
	Layout proxyconfig.Layout
	// ValuesName and SystemdName are those of ClusterValues. "cluster-values" and
	// "systemd-proxy" if empty.
	ValuesName, SystemdName string
}

// Check returns an error for a Config that no plan can be made with.
func (c Config) Check() error {
	namespace, name, _ := strings.Cut(c.Installation, "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return errors.New("propagate: Config.Installation is required: the namespace/name of a Secret")
	}
	if problems := validation.IsValidLabelValue(c.managedBy()); len(problems) > 0 {
		return errors.New("propagate: Config.ManagedBy: " + problems[0])
	}
	// Build checks the others, of whatever Cluster.
	example := proxyconfig.ClusterValues{Name: "a", Namespace: "a", Credentials: c.Credentials, EnvSecret: c.EnvSecret, Layout: c.Layout, ValuesName: c.ValuesName, SystemdName: c.SystemdName}
	_, err := example.Build()
	if field, ok := errors.AsType[*proxyconfig.FieldError](err); ok {
		return fmt.Errorf("propagate: Config.%s: %w", field.Field, field.Err)
	}
	return err
}

// Suffixes are behind the Cluster's name in those of the ConfigMap and the Secret with
// values, and of the Secret for machines.
func (c Config) Suffixes() (values, systemd string) {
	return "-" + cmp.Or(c.ValuesName, "cluster-values"), "-" + cmp.Or(c.SystemdName, "systemd-proxy")
}

// Labels are those of the objects that are ours. Others are not written.
func (c Config) Labels() map[string]string {
	return map[string]string{LabelManagedBy: c.managedBy()}
}

func (c Config) managedBy() string { return cmp.Or(c.ManagedBy, "causeway") }

// Held is what the API server holds for a Cluster. A nil one does not exist.
type Held struct {
	Installation *corev1.Secret    // Config.Installation
	Override     *corev1.Secret    // <cluster>-proxy-override, if it has LabelOverride
	SystemdProxy *corev1.Secret    // <cluster>-systemd-proxy, or as Config.SystemdName says
	Secret       *corev1.Secret    // <cluster>-cluster-values, or as Config.ValuesName says
	ConfigMap    *corev1.ConfigMap // of the same name

	// Unlabelled says that there is a Secret <cluster>-proxy-override without
	// LabelOverride. It is not read; an Event says so.
	Unlabelled bool
}

// Format writes only the type, whatever the verb.
func (h Held) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "propagate.Held{(redacted)}") }

// MarshalText returns the same.
func (h Held) MarshalText() ([]byte, error) { return []byte("propagate.Held{(redacted)}"), nil }

// Action is what to do next.
type Action struct {
	// Writes are to be done in their order; what comes after one that failed is
	// left for the next plan.
	Writes []Object
	// Events about the Cluster, to be told once the writes are done.
	Events []Event
	// After is when to plan again if nothing changes. 0: never.
	After time.Duration
}

// Event is one for the Cluster. It holds no secret.
type Event struct {
	Type    string // corev1.EventTypeWarning or Normal
	Reason  string
	Message string
}

// Reasons of Events.
const (
	ReasonInstallation = "InvalidProxyInstallation"  // on the installation's Secret
	ReasonOverride     = "InvalidProxyOverride"      // <cluster>-proxy-override
	ReasonIncomplete   = "IncompleteProxy"           // a chart takes nothing of the merged configuration, an entry of its list covers nothing, or the Cluster names no networks
	ReasonCluster      = "InvalidProxyConfiguration" // the merged configuration, or a field of the Cluster
	ReasonNotOurs      = "NotOurs"                   // an object is in the way
	ReasonAdopted      = "Adopted"                   // a restored object has the Cluster as its owner again; of type Normal
	ReasonWriteFailed  = "WriteFailed"               // a write to the API server failed
)

// kubeadmServices is kubeadm's default of the networks of Services.
const kubeadmServices = "10.96.0.0/12"

// recheck is when an object that is in the way is looked at again: it isn't
// watched.
const recheck = time.Minute

type planner struct {
	cluster Cluster
	held    Held
	config  Config

	action Action
	errs   []error
}

// Plan says what is to be written for a Cluster. It sends nothing, and writes to
// nothing that it is given.
//
// People have to mend the error's cause: another call helps only after a
// change. With a [*SourceError] of the installation's Secret or of the
// override, or one of proxyconfig or noproxy, there are no Writes. With a
// [*NotOursError] for each object that is in the way, there are those of the
// others.
func Plan(cluster Cluster, held Held, config Config) (Action, error) {
	if cluster.Paused || cluster.Deleting {
		return Action{}, nil
	}
	p := &planner{cluster: cluster, held: held, config: config}
	installation, err := config.ReadInstallation(held.Installation)
	if err != nil {
		return Action{}, err // told of once, and not for each Cluster
	}
	user, err := readOverride(held.Override)
	if err == nil && !user.hasWord && !user.isChange() {
		err = p.lostOverride()
	}
	if err != nil {
		return refusePlan(ReasonOverride, err)
	}
	if len(cluster.Facts.ServiceCIDRs) == 0 {
		p.cluster.Facts.ServiceCIDRs = []string{kubeadmServices}
	}
	values, err := p.mergeLayers(installation, user)
	if err != nil {
		reason := ReasonCluster
		if errors.As(err, new(*SourceError)) {
			reason = ReasonOverride
		}
		return refusePlan(reason, err)
	}
	objects, err := values.Build()
	if err != nil {
		return refusePlan(ReasonCluster, fmt.Errorf("propagate: Cluster %s/%s: %w", cluster.Namespace, cluster.Name, err))
	}
	p.tellIgnored(cluster.Facts, user, values.Config)
	if user.isChange() {
		objects.SystemdProxy.Annotations[LabelOverride], objects.Secret.Annotations[LabelOverride] = "", ""
	}
	if len(cluster.Facts.ControlPlaneHosts) > 0 { // machines are made of it once, and would ask the proxy for their API server
		p.planObject(Object{Secret: held.SystemdProxy}, Object{Secret: objects.SystemdProxy})
	}
	p.planObject(Object{Secret: held.Secret}, Object{Secret: objects.Secret})
	p.planObject(Object{ConfigMap: held.ConfigMap}, Object{ConfigMap: objects.ConfigMap})
	p.adoptOverride()
	return p.action, errors.Join(p.errs...)
}

// lostOverride returns an error if what is written is by an override that changed something,
// and there is none now: a Secret that was not moved, restored or labelled is no word for the
// installation's proxies.
func (p *planner) lostOverride() error {
	changed := func(s *corev1.Secret) bool {
		if s == nil || s.Labels[LabelManagedBy] != p.config.managedBy() {
			return false
		}
		_, ok := s.Annotations[LabelOverride]
		return ok
	}
	if !changed(p.held.SystemdProxy) && !changed(p.held.Secret) {
		return nil
	}
	why := "it sets nothing any more"
	switch {
	case p.held.Unlabelled:
		why = p.unlabelledText()
	case p.held.Override == nil:
		why = "it is gone"
	}
	return &SourceError{Secret: p.overrideName(), Err: errors.New(why + "; what was written before stays: make it again, or, for the installation's proxies, with the key " + KeyDirect + " set to false and the label " + LabelOverride)}
}

func (p *planner) overrideName() string {
	return p.cluster.Namespace + "/" + p.cluster.Name + SuffixOverride
}

func (p *planner) unlabelledText() string {
	return fmt.Sprintf("it is not read, as it has no label %s: kubectl -n %s label secret %s %[1]s=", LabelOverride, p.cluster.Namespace, p.cluster.Name+SuffixOverride)
}

// tellIgnored tells of settings that somebody made and that have no effect, and of
// networks that the Cluster, whose facts these are, does not name.
func (p *planner) tellIgnored(facts noproxy.Cluster, user override, c proxyconfig.Config) {
	tell := func(reason, format string, args ...any) {
		p.action.Events = append(p.action.Events, warningEvent(reason, fmt.Errorf("propagate: "+format, args...)))
	}
	if p.held.Unlabelled {
		tell(ReasonOverride, "Secret %s: %s", p.overrideName(), p.unlabelledText())
	}
	if user.idleValues {
		tell(ReasonOverride, "Secret %s: key %s: sets nothing: want http, https or noProxy below proxy, cluster.proxy or global.connectivity.proxy, or http_proxy, https_proxy, no_proxy or env", p.overrideName(), KeyValues)
	}
	if len(facts.ServiceCIDRs) == 0 {
		tell(ReasonIncomplete, "Cluster %s/%s has no spec.clusterNetwork.services: kubeadm's default %s is taken, unless the propagator has --service-cidr", p.cluster.Namespace, p.cluster.Name, kubeadmServices)
	}
	if len(facts.PodCIDRs) == 0 {
		tell(ReasonIncomplete, "Cluster %s/%s has no spec.clusterNetwork.pods: addresses of pods are reached through the proxy, unless the propagator has --pod-cidr", p.cluster.Namespace, p.cluster.Name)
	}
	if (c.HTTPProxy == "") != (c.HTTPSProxy == "") && p.config.Layout == proxyconfig.LayoutCharts {
		tell(ReasonIncomplete, "Cluster %s/%s has a proxy for one of http and https: chart-operator takes none unless both are set, and machines reach the other targets without a proxy",
			p.cluster.Namespace, p.cluster.Name)
	}
	if _, err := (noproxy.Options{Strict: true}).Parse(c.NoProxy); err != nil {
		tell(ReasonIncomplete, "Cluster %s/%s has a list with entries that cover nothing: %w", p.cluster.Namespace, p.cluster.Name, err)
	}
}

func refusePlan(reason string, err error) (Action, error) {
	return Action{Events: []Event{warningEvent(reason, err)}}, err
}

func warningEvent(reason string, err error) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: reason, Message: err.Error()}
}

// mergeLayers merges the layers.
func (p *planner) mergeLayers(installation proxyconfig.Config, user override) (proxyconfig.ClusterValues, error) {
	facts := p.cluster.Facts
	facts.Layout = noproxy.GiantSwarm
	merged, err := proxyconfig.Layers{Installation: installation, Cluster: facts, User: user.Override}.Merge()
	if err != nil {
		return proxyconfig.ClusterValues{}, fmt.Errorf("propagate: Cluster %s/%s: %w", p.cluster.Namespace, p.cluster.Name, err)
	}
	v := proxyconfig.ClusterValues{
		Name: p.cluster.Name, Namespace: p.cluster.Namespace, Config: merged.Config,
		Credentials: p.config.Credentials, EnvSecret: p.config.EnvSecret, ManagedBy: p.config.managedBy(),
		Layout: p.config.Layout, ValuesName: p.config.ValuesName, SystemdName: p.config.SystemdName,
		PodCIDR: firstNetwork(facts.PodCIDRs), ServiceCIDR: firstNetwork(facts.ServiceCIDRs),
	}
	if c := user.credentials; c != nil {
		// An override must not pass on the installation's credentials.
		if *c < v.Credentials && (merged.HTTPProxyFrom == proxyconfig.FromInstallation || merged.HTTPSProxyFrom == proxyconfig.FromInstallation) {
			return v, &SourceError{Secret: p.held.Override.Namespace + "/" + p.held.Override.Name, Key: KeyCredentials,
				Err: errors.New("it lets the installation's credentials go where the installation doesn't")}
		}
		v.Credentials = *c
	}
	containerd := p.config.ContainerdInstallation
	if c := user.containerdInstallation; c != nil {
		containerd = *c
	}
	if containerd {
		v.ContainerdNoProxy = peoplesList(installation, user)
	}
	return v, nil
}

// peoplesList is the list that people wrote.
func peoplesList(installation proxyconfig.Config, user override) string {
	list := noproxy.ParseList(user.NoProxy, proxyconfig.FromUser)
	if !user.OwnList {
		list = append(noproxy.ParseList(installation.NoProxy, proxyconfig.FromInstallation), list...)
	}
	return list.String()
}
