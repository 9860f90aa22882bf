package kubeconfig

import (
	"os"
	"reflect"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// settings is what a kubeconfig says for a Client, the files that it names
// included. It is not changed once it is made.
type settings struct {
	current   *entries
	rest      *rest.Config // without the route
	extension *extension   // nil if there is none
	proxy     proxyFiles
}

// proxyFiles holds what the extension's proxyTLS names.
type proxyFiles struct{ CA, Certificate, Key []byte }

// readSettings reads config and the files that it names, and nothing else.
func (o *ClientOptions) readSettings(config *clientcmdapi.Config) (*settings, error) {
	current, err := currentEntries(config)
	if err != nil {
		return nil, err
	}
	if err := checkServer(current.cluster.Server); err != nil {
		return nil, fieldError(current.field("server"), err)
	}
	s := &settings{current: current}
	if s.extension, err = parseExtension(current.clusterName, current.cluster); err != nil {
		return nil, err
	}
	if s.rest, err = restConfig(current); err != nil {
		return nil, err
	}
	if o.Dialer == nil && o.ProxyTLS == nil && s.extension != nil && s.extension.proxyTLS != nil {
		err = s.readProxyFiles(s.extension.proxyTLS)
	}
	return s, err
}

// equal reports whether both lead to the same, in the same way and as the same
// user.
func (s *settings) equal(other *settings) bool {
	return s.current.cluster.ProxyURL == other.current.cluster.ProxyURL &&
		reflect.DeepEqual(s.rest, other.rest) &&
		reflect.DeepEqual(s.extension, other.extension) &&
		reflect.DeepEqual(s.proxy, other.proxy)
}

// endpoints are those beside the server.
func (s *settings) endpoints() []Endpoint {
	if s.extension == nil {
		return nil
	}
	return s.extension.endpoints
}

func (s *settings) readProxyFiles(t *ProxyTLS) (err error) {
	s.proxy.CA = t.CA
	if len(t.CA) == 0 {
		if s.proxy.CA, err = s.proxyFile("certificateAuthority", t.CAFile); err != nil {
			return err
		}
	}
	if s.proxy.Certificate, err = s.proxyFile("clientCertificate", t.CertificateFile); err != nil {
		return err
	}
	s.proxy.Key, err = s.proxyFile("clientKey", t.KeyFile)
	return err
}

// proxyFile reads a file that the extension's proxyTLS names. A relative path
// is taken from the kubeconfig's directory, as for the files of client-go.
func (s *settings) proxyFile(name, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	field := s.extensionField("proxyTLS." + name)
	data, err := os.ReadFile(besideFile(s.current.cluster, path))
	if err == nil && len(data) == 0 {
		return nil, fieldErrorf(field, "the file is empty")
	}
	return data, fieldError(field, err)
}

func (s *settings) extensionField(name string) string {
	return extensionField(s.current.clusterName) + "." + name
}
