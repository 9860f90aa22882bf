package connect

import (
	"net/http"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

// currentRoute is the newest one.
func (c *Client) currentRoute() *activeRoute { return c.newest.Load() }

// enterRoute returns the newest route, in which a request begins; nil once the
// Client is closed.
func (c *Client) enterRoute() *activeRoute {
	for {
		if c.bridge.conns.isClosed() {
			return nil
		}
		if g := c.currentRoute(); g.beginRequest() {
			return g
		}
	}
}

// readdressRequest returns req, or what it has to be for the server of g.
func (c *Client) readdressRequest(req *http.Request, g *activeRoute) *http.Request {
	known := c.known.Load()
	if len(*known) == 1 {
		return req
	}
	return route.Forward(req, g.Server, *known)
}

// isKnownAddress reports whether the API server is at address, or has been.
func (c *Client) isKnownAddress(address string) bool {
	for _, s := range *c.known.Load() {
		if route.EqualAddress(s.Address, address) {
			return true
		}
	}
	return false
}

// useConfig makes config the kubeconfig of all that was ever made of the Client.
func (c *Client) useConfig(config *clientcmdapi.Config) error {
	s, err := c.opts.routeOptions().ReadSettings(config)
	if err != nil || s.Equal(c.currentRoute().Settings) {
		return err
	}
	g, err := newActiveRoute(s, c.opts.routeOptions())
	if err == nil {
		c.installRoute(g)
	}
	return err
}

// installRoute makes g the newest route, unless the Client is closed.
func (c *Client) installRoute(g *activeRoute) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		g.close(errClosed)
		return
	}
	old := c.currentRoute()
	known := route.WithServer(*c.known.Load(), g.Server)
	c.known.Store(&known)
	c.newest.Store(g)
	c.mu.Unlock()
	old.refuseRequests()
	if !c.bridge.group.Go(func() { old.closeAfterLinger(c.bridge.conns.closed, c.linger) }) {
		old.close(errClosed)
	}
}
