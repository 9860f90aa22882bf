package connect_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/test/kubetest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/tunnel/gateway"
)

// What is built leads through a real gateway, until the ticket is revoked.
func TestTunnelThroughGateway(t *testing.T) {
	const cluster = "default/prod"
	api := newAPIServer(t)
	tickets := &gateway.Tickets{}
	g := &gateway.Gateway{
		Authenticate: tickets.Authenticate, Route: gateway.ByAuthority("zone.test"), Grace: -1,
		Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
			if r.Cluster != cluster || r.Address != "kubernetes.default.svc:443" {
				t.Errorf("asked for %s in %q", r.Address, r.Cluster)
			}
			return api.dial(ctx, "tcp", apiAddress)
		},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- g.ServeConnect(t.Context(), l) }()
	defer func() {
		g.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	user, password, err := tickets.Issue(gateway.Identity{Name: "controller", Cluster: cluster}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	spec := kubetest.Spec(api.ca)
	spec.Endpoint, spec.TLSServerName = kubeconfig.Endpoint{Host: "kubernetes.default.svc.prod.default.zone.test", Port: 443}, "api.test" // what the stand-in is called
	spec.Route.Tunnel = &kubeconfig.Tunnel{Gateway: "http://" + l.Addr().String(), User: user, Password: password, Cluster: cluster}
	config, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	newKubelet(t, api)
	c := kubetest.NewClient(t, config, nil)
	if err := namespaces(c.Config()); err != nil {
		t.Error(err)
	}
	if err := runCommand(t.Context(), t, c, "true", io.Discard); err != nil {
		t.Error(err)
	}
	if err := tickets.SetKeys(make([]byte, 32)); err != nil { // another key: former tickets are void
		t.Fatal(err)
	}
	var de *dialer.Error
	if err := namespaces(kubetest.NewClient(t, config, nil).Config()); !errors.As(err, &de) || de.Status != http.StatusProxyAuthRequired {
		t.Errorf("revoked: got %v, want 407", err)
	}
}
