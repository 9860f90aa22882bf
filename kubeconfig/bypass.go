package kubeconfig

import (
	"crypto/tls"
	"errors"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"
)

var errNoServerName = errors.New("kubeconfig: exec, attach and port-forward need the TLSClientConfig.ServerName of Client.Config")

// bypass is for what connects without the transport. client-go's executors and
// port-forwarders read TLS and credentials from a rest.Config, and a rest.Config
// with a transport may hold none; but they let its WrapTransport wrap what they
// connect with.
type bypass struct {
	config *transport.Config // the credentials
	tls    *tls.Config       // nil: the system's roots
}

func newBypass(config *transport.Config) (*bypass, error) {
	own := *config
	tlsConfig, err := transport.TLSConfigFor(&own)
	if err != nil {
		return nil, err
	}
	return &bypass{config: &own, tls: tlsConfig}, nil
}

// wrap is the WrapTransport of the rest.Configs handed out. It gives a round
// tripper that has a TLS configuration of its own, made for one rest.Config, the
// API server's; the transport, which has it all, it leaves alone.
func (b *bypass) wrap(rt http.RoundTripper) http.RoundTripper {
	holder, ok := rt.(utilnet.TLSClientConfigHolder)
	if !ok {
		return rt
	}
	own := holder.TLSClientConfig()
	if own == nil {
		return refusal{errNoServerName}
	}
	if b.tls != nil {
		own.MinVersion = b.tls.MinVersion
		own.InsecureSkipVerify = b.tls.InsecureSkipVerify
		own.RootCAs = b.tls.RootCAs
		own.Certificates = b.tls.Certificates
		own.GetClientCertificate = b.tls.GetClientCertificate
	}
	wrapped, err := transport.HTTPWrappersForConfig(b.config, rt)
	if err != nil {
		return refusal{err}
	}
	return wrapped
}

// refusal is a round tripper that has only an error.
type refusal struct{ err error }

func (r refusal) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	return nil, r.err
}
