package kubeconfig

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"
)

// restConfig is what client-go makes of the entries, without their route.
func restConfig(current *entries) (*rest.Config, error) {
	config := clientcmdapi.NewConfig()
	config.CurrentContext = current.context
	kubeContext := clientcmdapi.NewContext()
	kubeContext.Cluster = current.clusterName
	config.Contexts[current.context] = kubeContext
	cluster := current.cluster.DeepCopy()
	cluster.ProxyURL = "" // client-go's errors quote it, password and all
	config.Clusters[current.clusterName] = cluster
	if current.user != nil {
		kubeContext.AuthInfo = "user"
		config.AuthInfos["user"] = current.user.DeepCopy()
	}
	// Without a ConfigAccess the environment and the home directory are left
	// alone, and what an auth provider renews is saved nowhere.
	inner, err := clientcmd.NewNonInteractiveClientConfig(*config, current.context, nil, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return inner, loadFiles(current, inner)
}

// loadFiles reads the files of certificates and keys. Given the files,
// client-go would start a goroutine that looks for changes and is never
// stopped. An empty file is an error: without a CA the system's roots would be
// trusted.
func loadFiles(current *entries, inner *rest.Config) error {
	if err := rest.LoadTLSFiles(inner); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	for _, f := range []struct {
		name string
		file *string
		data []byte
	}{
		{current.field("certificate-authority"), &inner.CAFile, inner.CAData},
		{"client-certificate", &inner.CertFile, inner.CertData},
		{"client-key", &inner.KeyFile, inner.KeyData},
	} {
		if *f.file != "" && len(f.data) == 0 {
			return fieldErrorf(f.name, "the file is empty")
		}
		*f.file = ""
	}
	return nil
}

// newTransport returns a transport of its own that dials with conns:
// client-go's cache takes none with a Proxy function. The bypass is for what
// does without it.
func newTransport(inner *rest.Config, proxy *url.URL, conns *connections) (*gate, *bypass, error) {
	if proxy != nil {
		// For exec plugins, which are told of the cluster and its proxy.
		inner.Proxy = http.ProxyURL(proxy)
	}
	inner.Dial = conns.DialContext
	config, err := inner.TransportConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig: %w", err)
	}
	past, err := newBypass(config)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig: %w", err)
	}
	// Not nil: the environment would be asked.
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	g := &gate{conns: conns}
	config.WrapTransport = transport.Wrappers(func(base http.RoundTripper) http.RoundTripper {
		g.base = base // below what plugins wrap it in
		return base
	}, config.WrapTransport)
	if g.rt, err = transport.New(config); err != nil {
		return nil, nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return g, past, nil
}

// gate makes what a closed Client's transport returns an error that says so.
type gate struct {
	rt    http.RoundTripper // authenticates
	base  http.RoundTripper // the http.Transport below it
	conns *connections
}

var _ http.RoundTripper = (*gate)(nil)

func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	if g.conns.isClosed() {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, errClosed
	}
	resp, err := g.rt.RoundTrip(req)
	if err != nil {
		return nil, g.conns.explain(err)
	}
	// A connection that was upgraded is also written to.
	if resp.StatusCode != http.StatusSwitchingProtocols && resp.Body != http.NoBody {
		resp.Body = &body{ReadCloser: resp.Body, conns: g.conns}
	}
	return resp, nil
}

// CloseIdleConnections is there for http.Client.
func (g *gate) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(g.base) }

// WrappedRoundTripper lets client-go and apimachinery find the http.Transport.
func (g *gate) WrappedRoundTripper() http.RoundTripper { return g.rt }

type body struct {
	io.ReadCloser
	conns *connections
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.conns.explain(err)
	}
	return n, err
}
