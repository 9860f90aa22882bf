package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/mask"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
	"github.com/causewayproject/causeway/kubeconfig/internal/route"
)

const advicePlainTLS = "client-go verifies an https proxy by the CA and tls-server-name that the kubeconfig has for the API server, and shows it the same client certificate. " +
	"Use an http or socks5 proxy, or a certificate of the proxy that the cluster's CA issued."

// runPlain asks the API server by the transport that client-go makes. Only if that fails,
// the way is gone again phase by phase, to name the one that fails.
func runPlain(ctx context.Context, config *clientcmdapi.Config) Report {
	began := time.Now()
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	config, proxy, err := plainConfig(config)
	if err != nil {
		return unusableReport(config, time.Since(began), err)
	}
	// The proxy's TLS settings are the API server's, which only a route has.
	r, credentials, err := newRoute(ctx, &route.Options{}, config)
	if err == nil && proxy != nil {
		forProxy := &tls.Config{MinVersion: tls.VersionTLS12}
		if credentials.TLS != nil {
			forProxy = credentials.TLS.Clone()
		}
		r, credentials, err = newRoute(ctx, &route.Options{ProxyTLS: forProxy}, config)
	}
	if err != nil {
		return unusableReport(config, time.Since(began), err)
	}
	p := newProbing(r, credentials, r.Dialer.DialContext)
	defer p.close()
	p.transport = p.clientGoTransport(proxy, credentials.TLS)
	deadline, _ := ctx.Deadline()
	asked, stop := context.WithTimeout(ctx, time.Until(deadline)*3/4) // the rest is for naming the phase
	defer stop()
	if p.checkConfig() && p.checkPlugin(asked) && p.queryAPI(asked) {
		return p.report
	}
	failed := p.report.Failed()
	var (
		answer *statusError
		none   *errNoCredentials
	)
	if failed.Phase == PhaseConfig || errors.As(failed.Err, &answer) || errors.As(failed.Err, &none) {
		return p.report
	}
	phases := newProbing(r, credentials, r.Dialer.DialContext)
	defer phases.close()
	if phases.checkConfig() && phases.checkConnection(ctx) {
		if proxy != nil && proxy.User != nil {
			password, _ := proxy.User.Password()
			failed.Cause = mask.Text(failed.Cause, true, mask.Login(proxy.User.Username(), password))
		}
		phases.report.Steps = append(phases.report.Steps, *failed)
	} else {
		last := phases.report.Failed()
		if _, alerted := alertOf(last.Err); last.Phase == PhaseProxyTLS || last.Phase == PhaseConnect && alerted {
			last.Advice = advicePlainTLS
		}
	}
	return phases.report
}

// plainConfig returns config without our extension, and with the proxy that client-go
// uses for it; nil for none.
func plainConfig(config *clientcmdapi.Config) (*clientcmdapi.Config, *url.URL, error) {
	if config == nil {
		return nil, nil, field.Wrap("config", field.ErrRequired)
	}
	config = config.DeepCopy()
	current, err := entry.FollowContext(config)
	if err != nil {
		return config, nil, err
	}
	delete(current.Cluster.Extensions, entry.ExtensionName)
	if current.Cluster.ProxyURL == "" {
		u, err := environmentProxy(current.Cluster.Server)
		if err == nil && u != nil {
			current.Cluster.ProxyURL = u.String()
		}
		return config, u, field.Wrap("HTTPS_PROXY", err)
	}
	u, err := url.Parse(current.Cluster.ProxyURL)
	switch {
	case err != nil:
		return config, nil, field.Errorf(current.Field("proxy-url"), "is no URL") // the error quotes it
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5":
		return config, nil, field.Errorf(current.Field("proxy-url"), "client-go takes http, https and socks5, and not the scheme %q", u.Scheme)
	}
	u = &url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host} // client-go looks at nothing else
	current.Cluster.ProxyURL = u.String()
	return config, u, nil
}

var errNoProxyURL = errors.New("this process's environment names a proxy that is no URL")

// environmentProxy returns the proxy that the environment has for the server, as client-go
// reads it.
func environmentProxy(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, nil // reported elsewhere
	}
	proxy, err := utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)(&http.Request{URL: u})
	if err != nil {
		return nil, errNoProxyURL
	}
	return proxy, nil
}

// clientGoTransport returns what client-go's package transport makes, with two
// differences. It keeps its connections, to close them. And HTTP/2 is net/http's: the one that
// client-go sets up keeps a closed connection's memory for 30 seconds.
func (p *probing) clientGoTransport(proxy *url.URL, config *tls.Config) *http.Transport {
	d := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	if config != nil {
		config = config.Clone()
	}
	return &http.Transport{
		Proxy:               func(*http.Request) (*url.URL, error) { return proxy, nil },
		TLSHandshakeTimeout: 10 * time.Second,
		TLSClientConfig:     config,
		ForceAttemptHTTP2:   os.Getenv("DISABLE_HTTP2") == "", // client-go's variable
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return p.boundConn(conn), nil
		},
	}
}
