package kubeconfig

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

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

// makeTransport makes a transport of the generation's own, that dials by way:
// client-go's cache takes none with a Proxy function. The bypass is for what does
// without it.
func (g *generation) makeTransport(way *way) error {
	inner := rest.CopyConfig(g.settings.rest)
	if way.proxy != nil {
		// For exec plugins, which are told of the cluster and its proxy.
		inner.Proxy = http.ProxyURL(way.proxy)
	}
	inner.Dial = g.conns.by(way.dialer)
	config, err := inner.TransportConfig()
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if g.bypass, err = newBypass(config); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	// Not nil: the environment would be asked.
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	config.WrapTransport = transport.Wrappers(func(base http.RoundTripper) http.RoundTripper {
		g.base, _ = base.(*http.Transport) // below what plugins wrap it in
		return base
	}, config.WrapTransport)
	if g.rt, err = transport.New(config); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if g.base == nil {
		return errors.New("kubeconfig: client-go's transport is not an http.Transport") // not reached: see its cache
	}
	return nil
}
