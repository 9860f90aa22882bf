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

// checkRoute makes p.route from the settings and the Secret that they name.
func (p *planner) checkRoute() error {
	var err error
	p.route, err = p.readRoute()
	return err
}

func (p *planner) readRoute() (kubeconfig.Route, error) {
	s, secret := &p.settings, p.secrets.Route
	if s.ProxyURL == Direct {
		return kubeconfig.Route{Direct: true}, nil
	}
	if s.RouteSecret == "" {
		return p.proxyRoute(s.ProxyURL, nil)
	}
	if secret == nil {
		missing := p.missingSecret(s.RouteSecret, LabelRoute, fmt.Sprintf("there is no Secret %s with the label %s", s.RouteSecret, LabelRoute))
		if _, tunneled := p.cluster.routeAnnotations(); tunneled {
			return kubeconfig.Route{}, fmt.Errorf("%w: %s", errNoTicket, missing)
		}
		return kubeconfig.Route{}, s.layers.errorf(AnnotationRouteSecret, "%s", missing)
	}
	if _, ok := secret.Labels[LabelRoute]; !ok {
		return kubeconfig.Route{}, s.layers.errorf(AnnotationRouteSecret, "the Secret %s lacks the label %s, without which it is not for routes", s.RouteSecret, LabelRoute)
	}
	at, named := s.layers.findLayer(AnnotationRouteSecret), min(s.layers.findLayer(AnnotationProxyURL), s.layers.findLayer(AnnotationGateway))
	if gateway := secretText(secret, KeyGateway); gateway != "" && at < named {
		s.ProxyURL, s.Gateway = "", gateway
	}
	whole := secretText(secret, KeyProxyURL)
	conflict := false
	switch {
	case whole != "" && (at < named || field.SameProxy(whole, s.ProxyURL)):
		s.ProxyURL, s.Gateway = "", ""
	case whole != "":
		conflict, whole = true, ""
	case s.ProxyURL+s.Gateway == "":
		return kubeconfig.Route{}, s.layers.errorf(AnnotationRouteSecret, "the Secret %s has no key %s or %s, and no annotation names a proxy or gateway", s.RouteSecret, KeyProxyURL, KeyGateway)
	case len(secret.Data) == 0:
		return kubeconfig.Route{}, s.layers.errorf(AnnotationRouteSecret, "the Secret %s is empty: want %s and %s, or %s", s.RouteSecret, KeyUsername, KeyPassword, KeyProxyURL)
	}
	proxy := cmp.Or(whole, s.Gateway, s.ProxyURL)
	if err := p.checkSecret(proxy, named); err != nil {
		return kubeconfig.Route{}, s.layers.wrapError(AnnotationRouteSecret, err)
	}
	if conflict {
		return kubeconfig.Route{}, s.layers.errorf(AnnotationRouteSecret, "the Secret %s has the key %s, and an annotation names another proxy: want one of them", s.RouteSecret, KeyProxyURL)
	}
	return p.proxyRoute(proxy, secret)
}

// proxyRoute returns the route by a proxy or the gateway; zero if neither is set.
func (p *planner) proxyRoute(proxy string, secret *corev1.Secret) (kubeconfig.Route, error) {
	s := p.settings
	user, password := secretText(secret, KeyUsername), secretText(secret, KeyPassword)
	route := kubeconfig.Route{ProxyURL: proxy}
	switch {
	case s.Gateway != "":
		proxy = s.Gateway
		route = kubeconfig.Route{Tunnel: &kubeconfig.Tunnel{
			Gateway: s.Gateway, User: user, Password: password, Cluster: s.TunnelCluster,
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
	route.ProxyTLS, err = p.proxyTLS(secret)
	return route, err
}

// maxBundle is the longest ca.crt: all of Mozilla's authorities take 220 KiB.
const maxBundle = 256 << 10

// proxyTLS copies the CA. It refers to the Secret for the client certificate and its
// key, which must not be copied.
func (p *planner) proxyTLS(secret *corev1.Secret) (*kubeconfig.ProxyTLS, error) {
	t := &kubeconfig.ProxyTLS{CA: secret.Data["ca.crt"]}
	if len(t.CA) > maxBundle {
		return nil, p.settings.layers.errorf(AnnotationRouteSecret, "the Secret %s: ca.crt has %d bytes, want at most %d: leave out what the proxy does not need", p.settings.RouteSecret, len(t.CA), maxBundle)
	}
	cert, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if len(cert)+len(key) > 0 {
		if _, err := keypair.X509(cert, key); err != nil {
			return nil, p.settings.layers.errorf(AnnotationRouteSecret, "the Secret %s: %s and %s, for the proxy: %w", p.settings.RouteSecret, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
		}
		namespace, name, _ := strings.Cut(p.settings.RouteSecret, "/")
		t.Secret = &kubeconfig.SecretRef{Namespace: namespace, Name: name}
	}
	if len(t.CA) == 0 && t.Secret == nil {
		return nil, nil
	}
	return t, nil
}

// secretText returns the value without a final newline, which files have.
func secretText(s *corev1.Secret, key string) string {
	if s == nil {
		return ""
	}
	return strings.TrimRight(string(s.Data[key]), "\r\n")
}

// desiredRoute returns the configured route. An error says that the settings are wrong,
// or that kubeconfig.Merge refuses the kubeconfig.
func (p *planner) desiredRoute() (route, error) {
	natural, endpoint := p.naturalServer()
	bare := p.originalRoute()
	bare.Server, bare.Natural, bare.Endpoint = natural, "", endpoint
	spec, err := p.mergeSpec(natural)
	if err != nil || spec == nil {
		return bare, err
	}
	p.inputs = inputsOf(bare, *spec)
	if a := p.records.applied; a != nil && p.records.Inputs == p.inputs && (a.leadsThrough() || p.direct || !p.settings.namesRoute()) {
		return *a, nil
	}
	base, err := p.base.withRoute(bare)
	if err != nil {
		return bare, err
	}
	merged, err := kubeconfig.Merge(base, *spec)
	if err != nil {
		return bare, p.annotationError(err)
	}
	d, err := parseDocument(merged)
	if err != nil {
		return bare, err
	}
	r := d.current
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
func (p *planner) naturalServer() (server, endpoint string) {
	server = p.base.current.Server
	if p.follows {
		return server, ""
	}
	if a := p.records.applied; a != nil {
		if a.Natural != "" && server == a.Server {
			server = a.Natural
		}
		if a.Endpoint != "" && serverAddress(server) == serverAddress(a.Endpoint) && p.endpointOf(server) == "" {
			server = p.cluster.serverURL()
		}
	}
	return server, p.endpointOf(server)
}

// endpointOf returns the Cluster's endpoint if the server is made from it. An endpoint that is gone is
// still the one that was.
func (p *planner) endpointOf(server string) string {
	endpoint := p.cluster.Endpoint.String()
	if a := p.records.applied; a != nil && p.cluster.Endpoint == (kubeconfig.Endpoint{}) {
		endpoint = a.Endpoint
	}
	if p.follows || serverAddress(server) == "" || serverAddress(server) != serverAddress(endpoint) {
		return ""
	}
	return endpoint
}

// originalRoute returns the route before anything was configured.
func (p *planner) originalRoute() route {
	switch {
	case p.follows:
		return p.base.current
	case p.records.original != nil:
		return *p.records.original
	case p.records.Created:
		return route{}
	}
	return p.base.current
}

// mergeSpec returns the Spec to merge; nil if nothing is configured.
func (p *planner) mergeSpec(natural string) (*kubeconfig.Spec, error) {
	s := p.settings
	spec := &kubeconfig.Spec{Name: p.cluster.Name, TLSServerName: s.TLSServerName, Route: p.route}
	at, err := hostport.ParseServer(natural)
	hasPath := err == nil && at.Path != ""
	if s.Mode == Rewrite {
		spec.Endpoint, _ = parseServer(s.Server) // resolveSettings has checked it
		at, err = hostport.ParseServer(spec.Endpoint.String())
		spec.TLSServerName = cmp.Or(spec.TLSServerName, defaultServer)
	}
	proxied := p.route.ProxyURL != "" || p.route.Tunnel != nil
	if err == nil && proxied && s.NoProxy != "" && noproxy.Parse(s.NoProxy).Bypass(at.Hostname(), at.Port()) {
		spec.Route = kubeconfig.Route{Direct: true}
	}
	p.direct = spec.Route.Direct
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
		spec.MoreEndpoints = p.cluster.MoreEndpoints
	}
	if nothing && len(spec.MoreEndpoints) == 0 {
		return nil, nil
	}
	return spec, nil
}

// annotationError turns the error of a field of the route into one that names the annotation.
// Without a Secret only its password can be missing: resolveSettings has checked all else.
func (p *planner) annotationError(err error) error {
	var field *kubeconfig.FieldError
	l := p.settings.layers
	switch {
	case !errors.As(err, &field) || !strings.HasPrefix(field.Field, "Route."):
		return fmt.Errorf("provider: %w", err)
	case p.settings.RouteSecret == "": // or it is for an outer proxy
		return l.errorf(AnnotationGateway, "needs a Secret with the key %s: name one in %s", KeyPassword, AnnotationRouteSecret)
	}
	return l.errorf(AnnotationRouteSecret, "%s: %w", strings.ToLower(field.Field[strings.LastIndexByte(field.Field, '.')+1:]), field.Err)
}
