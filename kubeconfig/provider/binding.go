package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// refusedSecret says why the route Secret's credentials are not used.
type refusedSecret struct {
	text string
	// known says that they are for another proxy, or another Cluster, and not only that the
	// Secret doesn't say what they are for.
	known bool
}

// Error says what to do. It tells nothing that the Secret holds.
func (e *refusedSecret) Error() string { return e.text }

const bindAdvice = "set its key " + KeyProxyURL + " to the proxy's URL, or " + KeyGateway + " to that of the tunnel's gateway"

// checkSecret refuses a Secret whose credentials are not for the Cluster, or not for the
// proxy. Whoever may annotate a Cluster can name any Secret of its namespace, and any
// proxy. named is the layer that names the proxy.
func (s *state) checkSecret(proxy string, named int) error {
	secret, name := s.secrets.Route, s.settings.RouteSecret
	outside := s.settings.secretNamedOutside()
	if !hasCredentials(secret) {
		return nil
	}
	bound := field.SecretProxy(secret.Data)
	switch {
	case s.isOthers(secret):
		return &refusedSecret{fmt.Sprintf("the Secret %s is for another Cluster, which its label %s names: name a Secret of this Cluster", name, kubeconfig.ClusterNameLabel), true}
	case outside && named > 0:
		return nil
	case bound != "" && (bound == proxy || field.SameProxy(bound, proxy)):
		return nil
	case bound != "":
		return &refusedSecret{fmt.Sprintf("the Secret %s is for another proxy, which its key %s or %s names: want the same scheme, host and port in the annotation %s or %s, or none", name, KeyProxyURL, KeyGateway, AnnotationProxyURL, AnnotationGateway), true}
	case secret.Labels[kubeconfig.ClusterNameLabel] != "" && named > 0:
		return nil
	case s.secrets.SoleUser && !outside:
		s.unbound = true
		return nil
	}
	return &refusedSecret{fmt.Sprintf("the Secret %s doesn't say what proxy it is for, and may be used by others: %s", name, bindAdvice), false}
}

// isOthers reports whether the Secret belongs to another Cluster. A Cluster's annotation can
// name any Secret of its namespace.
func (s *state) isOthers(secret *corev1.Secret) bool {
	owner := secret.Labels[kubeconfig.ClusterNameLabel]
	return owner != "" && owner != s.cluster.Name
}

// secretNamedOutside reports whether the Namespace or Config.Defaults names the Secret, too.
func (r *resolved) secretNamedOutside() bool {
	return slices.ContainsFunc(r.layers[1:], func(l layer) bool {
		name := strings.TrimSpace(l.annotations[AnnotationRouteSecret])
		return name != "" && l.fullName(name) == r.RouteSecret
	})
}

// hasCredentials reports whether the Secret has more than a proxy's name and CA.
func hasCredentials(s *corev1.Secret) bool {
	return len(s.Data[KeyUsername])+len(s.Data[KeyPassword])+len(s.Data[corev1.TLSPrivateKeyKey]) > 0 || strings.Contains(secretText(s, KeyProxyURL), "@")
}

// routeCredentials returns those that the Secret has for a proxy.
func routeCredentials(s *corev1.Secret) (user, password string) {
	if u, err := url.Parse(secretText(s, KeyProxyURL)); err == nil && u.User != nil {
		password, _ = u.User.Password()
		return u.User.Username(), password
	}
	return secretText(s, KeyUsername), secretText(s, KeyPassword)
}

// secretFor returns the route Secret if it may be read for the route, and nil otherwise. A
// kubeconfig's author can name any proxy there.
func (d *decider) secretFor(r route) *corev1.Secret {
	s := d.secrets.Route
	if s == nil || errors.As(d.routeErr, new(*refusedSecret)) {
		return nil
	}
	proxy := d.route.ProxyURL
	if d.route.Tunnel != nil {
		proxy = d.route.Tunnel.Gateway
	}
	if field.SameProxy(proxy, r.ProxyURL) || field.SameProxy(field.SecretProxy(s.Data), r.ProxyURL) {
		return s
	}
	return nil
}

// clearRefused takes the credentials of a Secret that is refused out of the records: an
// earlier version may have accepted it. The proxy stays, so that nothing goes directly.
func (d *decider) clearRefused() {
	var refused *refusedSecret
	if !errors.As(d.routeErr, &refused) || !refused.known {
		return
	}
	if a := d.records.applied; a != nil {
		r := d.withoutRefused(*a)
		d.cleared = !r.sameEntry(*a)
		d.records.applied = &r
	}
	d.records.previous = slices.Clone(d.records.previous)
	for i, r := range d.records.previous {
		d.records.previous[i] = d.withoutRefused(r)
	}
}

// withoutRefused returns the route without what is the route Secret's, unless it leads by
// the proxy that the Secret is for and the Cluster may use it.
func (d *decider) withoutRefused(r route) route {
	s := d.secrets.Route
	if !d.isOthers(s) && field.SameProxy(field.SecretProxy(s.Data), r.ProxyURL) {
		return r
	}
	user, password := routeCredentials(s)
	if u, err := url.Parse(r.ProxyURL); err == nil && u.User != nil {
		if has, _ := u.User.Password(); has == password && (has != "" || u.User.Username() == user) {
			r = r.withoutUser()
		}
	}
	var e entry.Extension
	if json.Unmarshal(r.Extension, &e) != nil || e.ProxyTLS == nil || e.ProxyTLS.Secret == nil || e.ProxyTLS.Secret.Namespace+"/"+e.ProxyTLS.Secret.Name != d.settings.RouteSecret {
		return r
	}
	e.ProxyTLS.Secret = nil
	if r.Extension = nil; e.Object() != nil {
		r.Extension = e.Object().Raw
	}
	return r
}
