package connect

import (
	"crypto/tls"
	"errors"
	"net/http"

	"github.com/causewayproject/causeway/kubeconfig/internal/route"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"
)

var errNoServerName = errors.New("connect: exec, attach and port-forward need the TLSClientConfig.ServerName of Client.Config")

// wrapper returns the WrapTransport of a rest.Config handed out for this server
// name, for what connects without the transport. client-go's executors and
// port-forwarders read TLS and credentials from a rest.Config, and a rest.Config
// with a transport may hold none; but they let its WrapTransport wrap what they
// connect with.
// It gives a round tripper that has a TLS configuration of its own, made
// for one rest.Config, the API server's as it is then; the transport, which has
// it all, it leaves alone.
func (c *Client) wrapper(serverName string) transport.WrapperFunc {
	return func(rt http.RoundTripper) http.RoundTripper {
		holder, ok := rt.(utilnet.TLSClientConfigHolder)
		if !ok {
			return rt
		}
		own := holder.TLSClientConfig()
		if own == nil {
			return refusal{errNoServerName}
		}
		g := c.generation()
		if own.ServerName == serverName {
			own.ServerName = g.ServerName
		}
		wrapped, err := wrap(g.credentials, own, rt)
		if err != nil {
			return refusal{err}
		}
		return readdressing{c, wrapped}
	}
}

// wrap gives own what the API server's TLS needs, and rt the credentials.
func wrap(c *route.Credentials, own *tls.Config, rt http.RoundTripper) (http.RoundTripper, error) {
	if c.TLS != nil {
		own.MinVersion = c.TLS.MinVersion
		own.InsecureSkipVerify = c.TLS.InsecureSkipVerify
		own.RootCAs = c.TLS.RootCAs
		own.Certificates = c.TLS.Certificates
		own.GetClientCertificate = c.TLS.GetClientCertificate
	}
	return transport.HTTPWrappersForConfig(c.Config, rt)
}

// readdressing sends requests to the API server where it is now.
type readdressing struct {
	client *Client
	rt     http.RoundTripper
}

func (r readdressing) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.rt.RoundTrip(r.client.readdress(req, r.client.generation()))
}

// refusal is a round tripper that has only an error.
type refusal struct{ err error }

func (r refusal) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	return nil, r.err
}
