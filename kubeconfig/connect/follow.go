package connect

import (
	"context"
	"errors"
	"net/http"

	"github.com/causewayproject/causeway/kubeconfig/internal/route"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

var errSourceEnded = errors.New("connect: Options.Source has stopped watching: the Client stays with the kubeconfig it has")

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

// followSource ends with ctx, or with a Source that does not keep its word.
func (c *Client) followSource(ctx context.Context) {
	defer close(c.followed)
	faulty := false
	c.opts.Source.Watch(ctx, func(config *clientcmdapi.Config, err error) {
		if ctx.Err() != nil {
			return
		}
		changed := false
		if err == nil {
			changed, err = c.useConfig(config)
		}
		if err != nil || changed || faulty {
			c.opts.reportChange(err)
		}
		faulty = err != nil
	})
	if ctx.Err() == nil {
		c.opts.reportChange(errSourceEnded)
	}
}

// useConfig makes an activeRoute of config, and reports whether it is another one than
// there was.
func (c *Client) useConfig(config *clientcmdapi.Config) (bool, error) {
	s, err := c.opts.routeOptions().ReadSettings(config)
	if err != nil {
		return false, err
	}
	if s.Equal(c.currentRoute().Settings) {
		return false, nil
	}
	g, err := newActiveRoute(s, c.opts.routeOptions())
	if err != nil {
		return false, err
	}
	return c.installRoute(g), nil
}

// installRoute makes g the newest route, unless the Client is closed.
func (c *Client) installRoute(g *activeRoute) bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		g.close(errClosed)
		return false
	}
	old := c.currentRoute()
	known := route.WithServer(*c.known.Load(), g.Server)
	c.known.Store(&known)
	c.newest.Store(g)
	c.mu.Unlock()
	old.refuseRequests()
	limit := c.opts.lingerTime()
	if !c.bridge.group.Go(func() { old.closeAfterLinger(c.bridge.conns.closed, limit) }) {
		old.close(errClosed)
	}
	return true
}
