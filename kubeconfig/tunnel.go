package kubeconfig

import (
	"cmp"
	"errors"
	"net/url"
	"strings"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// Tunnel is a way through a gateway (package tunnel/gateway), for kubectl,
// Cluster API and whatever else honours a proxy-url: its CONNECT door, or its
// SOCKS5 door.
//
// # By server name
//
// A gateway's SNI door takes no proxy-url and no credentials: only the API
// server's own protect it. It is a Route of its own kind, the zero one: the Endpoint is
// the door, and TLSServerName the name by which the gateway's table knows the
// cluster. The API server's certificate has to carry that name.
type Tunnel struct {
	// Gateway is the door's URL, without user info: http, https, socks5 or
	// socks5h. What Route says of https proxies applies. Required. Without TLS,
	// an observer of the traffic sees the Password, though not the data to and from
	// the cluster.
	Gateway string
	// User and Password are the gateway's, such as a ticket
	// (gateway.Tickets.Issue): for one cluster, with an end, and revocable.
	// They must not be credentials of the cluster. An empty User is Cluster,
	// as gateway.ByUser wants it. Password is required.
	User, Password string
	// Cluster is the tunnel's name of the cluster: "prod", "default/prod". It
	// may be empty where the gateway knows it from the User. For gateway.ByAuthority, set
	// Spec.Endpoint to the name that says the cluster.
	Cluster string
}

const inCluster = entry.InCluster

// check reports all that is wrong with the Tunnel, but its combination with an
// Endpoint.
func (r Route) check(c Credentials) error {
	beyond := r.checkBeyond()
	t := r.Tunnel
	if t == nil {
		return beyond
	}
	var both error
	if r.ProxyURL != "" {
		both = field.Errorf("Route", "ProxyURL and Tunnel are set; want one of them")
	}
	return errors.Join(both,
		field.Wrap("Route.Tunnel.Gateway", t.checkGateway()),
		t.checkUser(c),
		beyond,
	)
}

func (t *Tunnel) checkGateway() error {
	if t.Gateway == "" {
		return field.ErrRequired
	}
	u, err := field.ParseProxyURL(t.Gateway)
	switch {
	case err != nil:
		return err
	case u.User != nil:
		return errors.New("holds user info: it belongs into User and Password")
	}
	return nil
}

// checkUser also asks the dialer what the door's protocol can carry.
func (t *Tunnel) checkUser(c Credentials) error {
	switch {
	case t.user() == "":
		return field.Errorf("Route.Tunnel.User", "%w, or Cluster", field.ErrRequired)
	case t.Password == "":
		return field.Wrap("Route.Tunnel.Password", field.ErrRequired)
	case t.Password == strings.TrimSpace(c.Token):
		return field.Errorf("Route.Tunnel.Password", "is the cluster's token, which is not for the gateway to know")
	case t.checkGateway() != nil:
		return nil
	}
	u, err := field.ParseProxyURL(t.proxyURL())
	if err == nil {
		_, err = dialer.FromURL(u, nil)
	}
	return field.Wrap("Route.Tunnel.User", err)
}

func (t *Tunnel) user() string { return cmp.Or(t.User, t.Cluster) }

// proxyURL returns the gateway with the credentials; empty if that can't be.
func (t *Tunnel) proxyURL() string {
	u, err := field.ParseProxyURL(t.Gateway)
	if err != nil {
		return ""
	}
	with := *u
	with.User = url.UserPassword(t.user(), t.Password)
	return with.String()
}

// throughTunnel returns s with what a tunnel leaves open filled in.
func (s Spec) throughTunnel() Spec {
	t := s.Route.Tunnel
	if (s.Endpoint == Endpoint{}) {
		s.Endpoint = Endpoint{Host: inCluster, Port: 443}
	}
	// kubectl would look for it in an https gateway's certificate, too: not
	// where it says nothing new.
	if s.TLSServerName == "" && (s.Endpoint.Host != inCluster || !strings.HasPrefix(t.Gateway, "https:")) {
		s.TLSServerName = inCluster
	}
	return s
}
