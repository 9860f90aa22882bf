package provider

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/internal/hostport"
	"github.com/causewayproject/causeway/internal/keypair"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
	"github.com/causewayproject/causeway/noproxy"
)

// errNoTicket is for a Cluster with LabelTunnel.
var errNoTicket = errors.New("the tunnel's server has not made its Secret yet")

// readRoute returns the configured route, from the settings and the Secret that they name.
func (s *state) readRoute() (kubeconfig.Route, error) {
	set, secret := &s.settings, s.secrets.Route
	if set.ProxyURL == Direct {
		return kubeconfig.Route{Direct: true}, nil
	}
	if set.RouteSecret == "" {
		return s.proxyRoute(set.ProxyURL, nil)
	}
	if secret == nil {
		missing := s.missingSecret(set.RouteSecret, LabelRoute, fmt.Sprintf("there is no Secret %s with the label %s", set.RouteSecret, LabelRoute))
		if _, tunneled := s.cluster.routeAnnotations(); tunneled {
			return kubeconfig.Route{}, fmt.Errorf("%w: %s", errNoTicket, missing)
		}
		return kubeconfig.Route{}, set.layers.errorf(AnnotationRouteSecret, "%s", missing)
	}
	if _, ok := secret.Labels[LabelRoute]; !ok {
		return kubeconfig.Route{}, set.layers.errorf(AnnotationRouteSecret, "the Secret %s lacks the label %s, without which it is not for routes", set.RouteSecret, LabelRoute)
	}
	at, named := set.layers.findLayer(AnnotationRouteSecret), min(set.layers.findLayer(AnnotationProxyURL), set.layers.findLayer(AnnotationGateway))
	if gateway := secretText(secret, KeyGateway); gateway != "" && at < named {
		set.ProxyURL, set.Gateway = "", gateway
	}
	whole := secretText(secret, KeyProxyURL)
	conflict := false
	switch {
	case whole != "" && (at < named || field.SameProxy(whole, set.ProxyURL)):
		set.ProxyURL, set.Gateway = "", ""
	case whole != "":
		conflict, whole = true, ""
	case set.ProxyURL+set.Gateway == "":
		return kubeconfig.Route{}, set.layers.errorf(AnnotationRouteSecret, "the Secret %s has no key %s or %s, and no annotation names a proxy or gateway", set.RouteSecret, KeyProxyURL, KeyGateway)
	case len(secret.Data) == 0:
		return kubeconfig.Route{}, set.layers.errorf(AnnotationRouteSecret, "the Secret %s is empty: want %s and %s, or %s", set.RouteSecret, KeyUsername, KeyPassword, KeyProxyURL)
	}
	proxy := cmp.Or(whole, set.Gateway, set.ProxyURL)
	if err := s.checkSecret(proxy, named); err != nil {
		return kubeconfig.Route{}, set.layers.wrapError(AnnotationRouteSecret, err)
	}
	if conflict {
		return kubeconfig.Route{}, set.layers.errorf(AnnotationRouteSecret, "the Secret %s has the key %s, and an annotation names another proxy: want one of them", set.RouteSecret, KeyProxyURL)
	}
	return s.proxyRoute(proxy, secret)
}

// proxyRoute returns the route by a proxy or the gateway; zero if neither is set.
func (s *state) proxyRoute(proxy string, secret *corev1.Secret) (kubeconfig.Route, error) {
	set := s.settings
	user, password := secretText(secret, KeyUsername), secretText(secret, KeyPassword)
	route := kubeconfig.Route{ProxyURL: proxy}
	switch {
	case set.Gateway != "":
		proxy = set.Gateway
		route = kubeconfig.Route{Tunnel: &kubeconfig.Tunnel{
			Gateway: set.Gateway, User: user, Password: password, Cluster: set.TunnelCluster,
		}}
	case proxy == "":
		return kubeconfig.Route{}, nil
	case user+password != "":
		if u, err := url.Parse(proxy); err == nil && u.User == nil {
			u.User = url.UserPassword(user, password)
			route.ProxyURL = u.String()
		}
	}
	if secret == nil || !strings.HasPrefix(strings.ToLower(proxy), "https:") {
		return route, nil
	}
	var err error
	route.ProxyTLS, err = s.proxyTLS(secret)
	return route, err
}

// maxBundle is the longest ca.crt: all of Mozilla's authorities take 220 KiB.
const maxBundle = 256 << 10

// proxyTLS copies the CA. It refers to the Secret for the client certificate and its
// key, which must not be copied.
func (s *state) proxyTLS(secret *corev1.Secret) (*kubeconfig.ProxyTLS, error) {
	t := &kubeconfig.ProxyTLS{CA: secret.Data["ca.crt"]}
	if len(t.CA) > maxBundle {
		return nil, s.settings.layers.errorf(AnnotationRouteSecret, "the Secret %s: ca.crt has %d bytes, want at most %d: leave out what the proxy does not need", s.settings.RouteSecret, len(t.CA), maxBundle)
	}
	cert, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if len(cert)+len(key) > 0 {
		if _, err := keypair.X509(cert, key); err != nil {
			return nil, s.settings.layers.errorf(AnnotationRouteSecret, "the Secret %s: %s and %s, for the proxy: %w", s.settings.RouteSecret, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
		}
		namespace, name, _ := strings.Cut(s.settings.RouteSecret, "/")
		t.Secret = &kubeconfig.SecretRef{Namespace: namespace, Name: name}
	}
	if len(t.CA) == 0 && t.Secret == nil {
		return nil, nil
	}
	return t, nil
}

// secretText returns the value without a final newline, which files have.
func secretText(s *corev1.Secret, key string) string {
	return strings.TrimRight(string(orEmpty(s).Data[key]), "\r\n")
}

// desiredRoute returns the configured route. An error says that the settings are wrong,
// or that kubeconfig.Merge refuses the kubeconfig.
func (d *decider) desiredRoute() (route, error) {
	natural, endpoint := d.naturalServer()
	bare := d.originalRoute()
	bare.Server, bare.Natural, bare.Endpoint = natural, "", endpoint
	spec, err := d.mergeSpec(natural)
	if err != nil || spec == nil {
		return bare, err
	}
	d.inputs = inputsOf(bare, *spec)
	if a := d.records.applied; a != nil && d.records.Inputs == d.inputs && (a.leadsThrough() || d.direct || !d.settings.namesRoute()) {
		return *a, nil
	}
	base, err := d.base.withRoute(bare)
	if err != nil {
		return bare, err
	}
	merged, err := kubeconfig.Merge(base, *spec)
	if err != nil {
		return bare, d.annotationError(err)
	}
	doc, err := parseDocument(merged)
	if err != nil {
		return bare, err
	}
	r := doc.current
	if r.Endpoint = endpoint; r.Server != natural {
		r.Natural = natural
	}
	return r, nil
}

// inputsOf returns a hash of everything that a route is made from. A merge takes ten
// times as long.
func inputsOf(bare route, s kubeconfig.Spec) string {
	type tunnel kubeconfig.Tunnel // which prints its password
	r := s.Route
	return hashParts(encodeJSON(bare), encodeJSON(s.Endpoint), encodeJSON(s.MoreEndpoints), encodeJSON([]string{s.TLSServerName, r.ProxyURL, r.NoProxy}),
		encodeJSON((*tunnel)(r.Tunnel)), encodeJSON(r.Direct), encodeJSON(r.Header), encodeJSON(r.ProxyTLS))
}

// naturalServer returns the server without rewriting, and the Cluster's endpoint if
// the server is made from it. A server that somebody chose stays. A server made from
// an endpoint changes with that endpoint.
func (d *decider) naturalServer() (server, endpoint string) {
	server = d.base.current.Server
	if d.follows {
		return server, ""
	}
	if a := d.records.applied; a != nil {
		if a.Natural != "" && server == a.Server {
			server = a.Natural
		}
		if a.Endpoint != "" && serverAddress(server) == serverAddress(a.Endpoint) && d.endpointOf(server) == "" {
			server = d.cluster.serverURL()
		}
	}
	return server, d.endpointOf(server)
}

// endpointOf returns the Cluster's endpoint if the server is made from it. An endpoint that is gone is
// still the one that was.
func (d *decider) endpointOf(server string) string {
	endpoint := d.cluster.Endpoint.String()
	if a := d.records.applied; a != nil && d.cluster.Endpoint == (kubeconfig.Endpoint{}) {
		endpoint = a.Endpoint
	}
	if d.follows || serverAddress(server) == "" || serverAddress(server) != serverAddress(endpoint) {
		return ""
	}
	return endpoint
}

// originalRoute returns the route before anything was configured.
func (d *decider) originalRoute() route {
	switch {
	case d.follows:
		return d.base.current
	case d.records.original != nil:
		return *d.records.original
	case d.records.Created:
		return route{}
	}
	return d.base.current
}

// mergeSpec returns the Spec to merge; nil if nothing is configured.
func (d *decider) mergeSpec(natural string) (*kubeconfig.Spec, error) {
	s := d.settings
	spec := &kubeconfig.Spec{Name: d.cluster.Name, TLSServerName: s.TLSServerName, Route: d.route, Now: d.config.Now}
	at, err := hostport.ParseServer(natural)
	hasPath := err == nil && at.Path != ""
	if s.Mode == Rewrite {
		spec.Endpoint, _ = parseServer(s.Server) // resolveSettings has checked it
		at, err = hostport.ParseServer(spec.Endpoint.String())
		spec.TLSServerName = cmp.Or(spec.TLSServerName, defaultServer)
	}
	proxied := d.route.ProxyURL != "" || d.route.Tunnel != nil
	if err == nil && proxied && s.NoProxy != "" && noproxy.Parse(s.NoProxy).Bypass(at.Hostname(), at.Port()) {
		spec.Route = kubeconfig.Route{Direct: true}
	}
	d.direct = spec.Route.Direct
	switch {
	case s.Mode == Rewrite && hasPath:
		return nil, s.layers.errorf(AnnotationServer, "takes the place of the kubeconfig's server, which has a path that would be lost: want another mode than rewrite")
	case spec.Route.Tunnel != nil && s.Mode != Rewrite:
		e, err := parseServer(natural)
		if err != nil {
			return nil, s.layers.errorf(AnnotationGateway, "the kubeconfig's server %w, for the tunnel's agent to dial; a server with a path needs a proxy-url", err)
		}
		spec.Endpoint = e
	}
	nothing := !proxied && !spec.Route.Direct && spec.TLSServerName == ""
	if s.Mode != Rewrite && (!nothing || s.Mode == Own) {
		spec.MoreEndpoints = d.cluster.MoreEndpoints
	}
	if nothing && len(spec.MoreEndpoints) == 0 {
		return nil, nil
	}
	return spec, nil
}

// annotationError turns the error of a field of the route into one that names the annotation.
// Without a Secret only its password can be missing: resolveSettings has checked all else.
func (d *decider) annotationError(err error) error {
	var field *kubeconfig.FieldError
	l := d.settings.layers
	switch {
	case !errors.As(err, &field) || !strings.HasPrefix(field.Field, "Route."):
		return fmt.Errorf("provider: %w", err)
	case d.settings.RouteSecret == "": // or it is for an outer proxy
		return l.errorf(AnnotationGateway, "needs a Secret with the key %s: name one in %s", KeyPassword, AnnotationRouteSecret)
	}
	name := field.Field[strings.LastIndexByte(field.Field, '.')+1:]
	return l.errorf(AnnotationRouteSecret, "%s: %w", cmp.Or(secretKeys[name], strings.ToLower(name)), field.Err)
}

// secretKeys are the keys of a route Secret that fields of a kubeconfig.Route are made of.
var secretKeys = map[string]string{"ProxyURL": KeyProxyURL, "User": KeyUsername, "CA": "ca.crt"}
