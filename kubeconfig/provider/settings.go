package provider

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
	"github.com/causewayproject/causeway/noproxy"
)

// Mode is what the provider does for a Cluster.
type Mode string

// The modes.
const (
	// Auto is Decorate if the Cluster has a controlPlaneRef, or will have one since a
	// ClusterClass makes it, and Own otherwise. The default. As an annotation also "auto".
	Auto Mode = ""
	// Own: the provider makes the kubeconfig Secret, its credentials included,
	// and rotates them. One that another made is adopted, its owner and type
	// stay; a user's (type Opaque) only if the mode is named, and not by Auto.
	Own Mode = "own"
	// Decorate: the Secret is another's; the provider merges the route into it, after each write of the other.
	Decorate Mode = "decorate"
	// Secondary: <cluster>-kubeconfig is not changed, and a second Secret has the route.
	Secondary Mode = "secondary"
	// Rewrite is Decorate with server replaced by Settings.Server, which
	// survives Cluster API's regeneration. The API server's certificate is
	// verified for kubernetes.default.svc, which each of kubeadm's carries,
	// unless Settings.TLSServerName says otherwise.
	Rewrite Mode = "rewrite"
	// Off hands back: what the provider added is taken away again, once.
	Off Mode = "off"
)

// Direct is the ProxyURL of a Cluster that is reached directly, whatever
// outer settings say.
const Direct = "direct"

var settingName = regexp.MustCompile(`^[a-zA-Z.]{1,63}$`)

const (
	defaultGrace  = 10 * time.Minute
	defaultServer = "kubernetes.default.svc" // the name that Rewrite verifies
	proxiedSuffix = "-proxied"
)

// Settings are those of one Cluster, or the installation's defaults. Empty
// fields say nothing.
type Settings struct {
	Mode          Mode
	ProxyURL      string // without user info; Direct for none
	Gateway       string
	TunnelCluster string
	RouteSecret   string // "namespace/name"
	NoProxy       string
	TLSServerName string
	Server        string
	SecondaryName string
	Grace         time.Duration // 0 is 10 minutes
	NoProbe       bool
}

// SettingError says which annotation can't be used, and what to do. It holds
// no secret.
type SettingError struct {
	// Annotation is its name, which stands for the field of Config.Defaults too.
	Annotation string
	// Where says which of "Cluster", "Namespace" and "Config.Defaults" has it.
	Where string
	Err   error
}

// whereDefaults is the SettingError.Where of a field of Config.Defaults.
const whereDefaults = "Config.Defaults"

// settingFields are the fields of Settings that stand for annotations.
var settingFields = map[string]string{
	AnnotationMode: "Mode", AnnotationProxyURL: "ProxyURL", AnnotationGateway: "Gateway", AnnotationTunnelCluster: "TunnelCluster",
	AnnotationRouteSecret: "RouteSecret", AnnotationNoProxy: "NoProxy",
	AnnotationTLSServerName: "TLSServerName", AnnotationServer: "Server", AnnotationSecondary: "SecondaryName", AnnotationGrace: "Grace", AnnotationProbe: "NoProbe",
}

// Error names the annotation and where it stands, or the field of Config.Defaults, and says
// what is wrong with it.
func (e *SettingError) Error() string {
	if name := settingFields[e.Annotation]; name != "" && e.Where == whereDefaults {
		return fmt.Sprintf("provider: %s.%s: %v", whereDefaults, name, e.Err)
	}
	return fmt.Sprintf("provider: %s of the %s: %v", e.Annotation, e.Where, e.Err)
}

// Unwrap returns Err.
func (e *SettingError) Unwrap() error { return e.Err }

// Resolve returns the settings of a Cluster: a Mode that is not Auto,
// RouteSecret with its namespace, and no field that matters left empty. The error
// is a [*SettingError]; the Settings then hold what could be read.
func Resolve(cluster Cluster, config Config) (Settings, error) {
	r, err := resolveSettings(cluster, config)
	return r.Settings, err
}

// Check returns what is wrong with the Config of an installation, before any Cluster is known:
// a [*SettingError] for a field of Defaults. What Clusters may add is not missed.
func (c Config) Check() error {
	if c.Interval < 0 {
		return errors.New("provider: Config.Interval: want no negative duration")
	}
	if c.Defaults.Mode == Rewrite && c.Defaults.Server == "" {
		c.Defaults.Server = "any:443"
	}
	_, err := Resolve(Cluster{Namespace: "any", Name: "any"}, c)
	return err
}

// resolved are Settings with their sources.
type resolved struct {
	Settings
	layers   layers
	explicit bool // the mode is named
}

// namesRoute reports whether the settings name a way that is not direct.
func (s Settings) namesRoute() bool {
	return s.ProxyURL != "" && s.ProxyURL != Direct || s.Gateway != "" || s.RouteSecret != "" || s.Mode == Rewrite
}

func resolveSettings(cluster Cluster, config Config) (resolved, error) {
	annotations, tunneled := cluster.routeAnnotations()
	l := layers{
		{"Cluster", cluster.Namespace, annotations},
		{"Namespace", cluster.Namespace, cluster.NamespaceAnnotations},
		{whereDefaults, "", config.Defaults.asAnnotations()},
	}
	r := resolved{layers: l}
	r.ProxyURL, r.Gateway = l.nearestValue(AnnotationProxyURL), l.nearestValue(AnnotationGateway)
	var both error
	switch proxy, gateway := l.findLayer(AnnotationProxyURL), l.findLayer(AnnotationGateway); {
	case proxy < gateway:
		r.Gateway = ""
	case gateway < proxy:
		r.ProxyURL = ""
	case proxy < len(l):
		both = l.errorf(AnnotationGateway, "stands beside proxy-url: want one of them")
	}
	r.TunnelCluster = cmp.Or(l.nearestValue(AnnotationTunnelCluster), cluster.Namespace+"/"+cluster.Name)
	r.NoProxy, r.TLSServerName = l.nearestValue(AnnotationNoProxy), l.nearestValue(AnnotationTLSServerName)
	r.Server, r.SecondaryName = l.nearestValue(AnnotationServer), cmp.Or(l.nearestValue(AnnotationSecondary), cluster.Name+proxiedSuffix)
	if tunneled && l.findLayer(AnnotationNoProxy) > 0 { // it may lead directly
		r.NoProxy = ""
	}
	if tunneled && l.findLayer(AnnotationProxyURL) > 0 {
		r.ProxyURL = ""
	}
	// The Secret comes first: who uses one is known in spite of other mistakes.
	for _, read := range []func(Cluster) error{r.readRouteSecret, r.readMode, r.readProbing, r.checkValues} {
		if err := read(cluster); err != nil {
			return r, err
		}
	}
	return r, both
}

func (r *resolved) readMode(cluster Cluster) error {
	text := r.layers.nearestValue(AnnotationMode)
	r.Mode = Mode(strings.ToLower(text))
	r.explicit = true
	switch r.Mode {
	case Own, Decorate, Secondary, Rewrite, Off:
		return nil
	case Auto, "auto":
	default:
		r.Mode, r.explicit = Auto, false
		if large, ok := strings.CutSuffix(text, clusterapi.LargeSuffix); ok && settingName.MatchString(large) {
			return r.layers.errorf(AnnotationMode, "is not read, since %s of the Cluster has more than 16 KiB: shorten it", large)
		}
		return r.layers.errorf(AnnotationMode, "is unknown: want %s, %s, %s, %s, %s or auto", Own, Decorate, Secondary, Rewrite, Off)
	}
	r.explicit = false
	r.Mode = Own
	if cluster.HasControlPlane || cluster.HasTopology {
		r.Mode = Decorate
	}
	return nil
}

// readRouteSecret ignores a Secret that is meant for another proxy.
func (r *resolved) readRouteSecret(Cluster) error {
	at := r.layers.findLayer(AnnotationRouteSecret)
	if at == len(r.layers) || at > min(r.layers.findLayer(AnnotationProxyURL), r.layers.findLayer(AnnotationGateway)) && (r.ProxyURL != "" || r.Gateway != "") {
		return nil
	}
	name := r.layers.nearestValue(AnnotationRouteSecret)
	namespace, rest, ok := strings.Cut(name, "/")
	if last := name[strings.LastIndexByte(name, '/')+1:]; len(validation.IsDNS1123Subdomain(last)) > 0 {
		return r.layers.errorf(AnnotationRouteSecret, "is no name that a Secret can have") // it may be a password
	}
	switch layer := r.layers[at]; {
	case layer.namespace != "" && ok:
		return r.layers.errorf(AnnotationRouteSecret, "names a namespace: want the name of a Secret in %s", layer.namespace)
	case layer.namespace != "":
		r.RouteSecret = layer.fullName(name)
	case !ok || namespace == "" || rest == "":
		return r.layers.errorf(AnnotationRouteSecret, "want namespace/name")
	default:
		r.RouteSecret = name
	}
	return nil
}

func (r *resolved) readProbing(Cluster) error {
	r.Grace = defaultGrace
	if text := r.layers.nearestValue(AnnotationGrace); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return r.layers.errorf(AnnotationGrace, "want a positive duration such as 10m")
		}
		r.Grace = d
	}
	switch r.layers.nearestValue(AnnotationProbe) {
	case "", "on":
	case "off":
		r.NoProbe = true
	default:
		return r.layers.errorf(AnnotationProbe, "want on or off")
	}
	return nil
}

func (r *resolved) checkValues(cluster Cluster) error {
	for annotation, text := range map[string]string{AnnotationProxyURL: r.ProxyURL, AnnotationGateway: r.Gateway} {
		if text == "" || text == Direct && annotation == AnnotationProxyURL {
			continue
		}
		// An @ is enough: a password that was not encoded makes no user info.
		if u, err := url.Parse(text); strings.Contains(text, "@") || err == nil && u.User != nil {
			return r.layers.errorf(annotation, "holds user info: put it into the Secret that route-secret names")
		}
		if _, err := field.ParseProxyURL(text); err != nil && annotation == AnnotationProxyURL {
			return r.layers.errorf(annotation, "%w; or %s, for none", err, Direct)
		} else if err != nil {
			return r.layers.wrapError(annotation, err)
		}
	}
	if r.Mode == Secondary && strings.HasSuffix(r.SecondaryName, kubeconfigSuffix) {
		r.SecondaryName = cluster.Name + proxiedSuffix
		return r.layers.errorf(AnnotationSecondary, "ends in %s: Cluster API takes such a Secret for another cluster's", kubeconfigSuffix)
	}
	if problems := validation.IsDNS1123Subdomain(r.SecondaryName); r.Mode == Secondary && len(problems) > 0 {
		r.SecondaryName = cluster.Name + proxiedSuffix
		return r.layers.errorf(AnnotationSecondary, "is no name of a Secret: %s", problems[0])
	}
	if r.Mode == Rewrite {
		if _, err := parseServer(r.Server); err != nil {
			return r.layers.wrapError(AnnotationServer, err)
		}
	}
	if r.TLSServerName != "" {
		if err := field.CheckHost(r.TLSServerName); err != nil {
			return r.layers.wrapError(AnnotationTLSServerName, err)
		}
	}
	if _, err := (noproxy.Options{Strict: true}).Parse(r.NoProxy); err != nil {
		return r.layers.wrapError(AnnotationNoProxy, err)
	}
	return nil
}

// asAnnotations returns s as a Namespace would have it.
func (s Settings) asAnnotations() map[string]string {
	m := map[string]string{
		AnnotationMode: string(s.Mode), AnnotationProxyURL: s.ProxyURL, AnnotationGateway: s.Gateway,
		AnnotationTunnelCluster: s.TunnelCluster,
		AnnotationRouteSecret:   s.RouteSecret, AnnotationNoProxy: s.NoProxy, AnnotationTLSServerName: s.TLSServerName,
		AnnotationServer: s.Server, AnnotationSecondary: s.SecondaryName,
	}
	if s.Grace != 0 {
		m[AnnotationGrace] = s.Grace.String()
	}
	if s.NoProbe {
		m[AnnotationProbe] = "off"
	}
	return m
}

// layers are the sources of settings, the nearest first.
type layers []layer

type layer struct {
	where       string
	namespace   string // the one of its Secrets; empty if their names include it
	annotations map[string]string
}

// fullName returns namespace/name of a Secret that the layer names.
func (l layer) fullName(secret string) string {
	if l.namespace == "" {
		return secret
	}
	return l.namespace + "/" + secret
}

// findLayer returns the index of the nearest layer that has the annotation; len(l) if
// no layer has it.
func (l layers) findLayer(annotation string) int {
	for i, layer := range l {
		if strings.TrimSpace(layer.annotations[annotation]) != "" {
			return i
		}
	}
	return len(l)
}

func (l layers) nearestValue(annotation string) string {
	if i := l.findLayer(annotation); i < len(l) {
		return strings.TrimSpace(l[i].annotations[annotation])
	}
	return ""
}

func (l layers) errorf(annotation, format string, args ...any) error {
	return l.wrapError(annotation, fmt.Errorf(format, args...))
}

func (l layers) wrapError(annotation string, err error) error {
	if annotation == AnnotationGateway && l.findLayer(annotation) == len(l) {
		annotation = AnnotationRouteSecret // whose Secret names it
	}
	e := &SettingError{Annotation: annotation, Where: "Cluster", Err: err}
	if i := l.findLayer(annotation); i < len(l) {
		e.Where = l[i].where
	}
	return e
}
