package route

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/hostport"
	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// Settings is what a kubeconfig says of a route, the files that it names
// included. It is not changed once it is made.
type Settings struct {
	Current   *entry.Current
	Rest      *rest.Config     // without the route
	extension *entry.Extension // the zero value without one
	proxy     proxyFiles
}

// proxyFiles holds what the extension's proxyTLS names.
type proxyFiles struct{ CA, Certificate, Key []byte }

// ReadSettings reads config and the files that it names, and nothing else.
func (o *Options) ReadSettings(config *clientcmdapi.Config) (*Settings, error) {
	current, err := entry.FollowContext(config)
	if err != nil {
		return nil, err
	}
	if err := checkServer(current.Cluster.Server); err != nil {
		return nil, field.Wrap(current.Field("server"), err)
	}
	s := &Settings{Current: current}
	if s.extension, err = entry.ParseExtension(current.ClusterName, current.Cluster); err != nil {
		return nil, err
	}
	files := NamedFiles(current)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := checkFile(files[name]); err != nil {
			return nil, field.Wrap(name, err)
		}
	}
	if s.Rest, err = restConfig(current); err != nil {
		return nil, err
	}
	readToken(s.Rest, current.User)
	if o.Dialer == nil && o.ProxyTLS == nil && s.extension.ProxyTLS != nil {
		err = s.readProxyFiles(s.extension.ProxyTLS)
	}
	return s, err
}

// Equal reports whether both reach the same server, in the same way and as the same
// user.
func (s *Settings) Equal(other *Settings) bool {
	return s.Current.Cluster.ProxyURL == other.Current.Cluster.ProxyURL &&
		reflect.DeepEqual(s.Rest, other.Rest) &&
		reflect.DeepEqual(s.extension, other.extension) &&
		reflect.DeepEqual(s.proxy, other.proxy)
}

func (s *Settings) readProxyFiles(t *entry.ProxyTLS) (err error) {
	s.proxy.CA = t.CertificateAuthorityData
	if len(t.CertificateAuthorityData) == 0 {
		if s.proxy.CA, err = s.proxyFile("certificateAuthority", t.CertificateAuthority); err != nil {
			return err
		}
	}
	if s.proxy.Certificate, err = s.proxyFile("clientCertificate", t.ClientCertificate); err != nil {
		return err
	}
	s.proxy.Key, err = s.proxyFile("clientKey", t.ClientKey)
	return err
}

// proxyFile reads a file that the extension's proxyTLS names. A relative path
// is taken from the kubeconfig's directory, as for the files of client-go.
func (s *Settings) proxyFile(name, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(besideFile(s.Current.Cluster, path))
	if err == nil && len(data) == 0 {
		err = errors.New("the file is empty")
	}
	return data, field.Wrap(s.extensionField("proxyTLS."+name), err)
}

func (s *Settings) extensionField(name string) string {
	return entry.ExtensionField(s.Current.ClusterName) + "." + name
}

// restConfig is what client-go makes of the entries, without their route.
func restConfig(current *entry.Current) (*rest.Config, error) {
	config := clientcmdapi.NewConfig()
	config.CurrentContext = current.Context
	kubeContext := clientcmdapi.NewContext()
	kubeContext.Cluster = current.ClusterName
	config.Contexts[current.Context] = kubeContext
	cluster := current.Cluster.DeepCopy()
	cluster.ProxyURL = "" // client-go's errors quote it, password and all
	config.Clusters[current.ClusterName] = cluster
	if current.User != nil {
		kubeContext.AuthInfo = "user"
		config.AuthInfos["user"] = current.User.DeepCopy()
	}
	// Without a ConfigAccess client-go reads neither the environment nor the
	// home directory, and saves no credentials that an auth provider renews.
	inner, err := clientcmd.NewNonInteractiveClientConfig(*config, current.Context, nil, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return inner, loadFiles(current, inner)
}

// maxFile is the largest file that is read whole; a CA bundle has 300 KiB.
const maxFile = 16 << 20

// checkFile refuses a file whose end is not reached, such as /dev/zero. Other errors are
// those of who reads it.
func checkFile(path string) error {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil
	case info.Mode()&os.ModeDevice != 0:
		return errors.New("is a device: want a file")
	case info.Size() > maxFile:
		return fmt.Errorf("has %d bytes: want at most %d", info.Size(), maxFile)
	}
	return nil
}

// NamedFiles are the files that the entries and the extension name, by field.
func NamedFiles(current *entry.Current) map[string]string {
	files := map[string]string{current.Field("certificate-authority"): current.Cluster.CertificateAuthority}
	if user := current.User; user != nil {
		files["tokenFile"], files["client-certificate"], files["client-key"] = user.TokenFile, user.ClientCertificate, user.ClientKey
	}
	if e, err := entry.ParseExtension(current.ClusterName, current.Cluster); err == nil && e.ProxyTLS != nil {
		path, t := entry.ExtensionField(current.ClusterName)+".proxyTLS.", e.ProxyTLS
		for name, file := range map[string]string{"certificateAuthority": t.CertificateAuthority, "clientCertificate": t.ClientCertificate, "clientKey": t.ClientKey} {
			files[path+name] = besideFile(current.Cluster, file)
		}
	}
	maps.DeleteFunc(files, func(_, path string) bool { return path == "" })
	return files
}

// readToken makes BearerToken what client-go sends: what is in the token file, without the
// white space around it, if there is something.
func readToken(inner *rest.Config, user *clientcmdapi.AuthInfo) {
	text := inner.BearerToken // of the file, if the user has no token
	if inner.BearerTokenFile == "" {
		return
	}
	if user.Token != "" {
		data, err := os.ReadFile(inner.BearerTokenFile)
		if err != nil {
			return
		}
		text = string(data)
	}
	if token := strings.TrimSpace(text); token != "" {
		inner.BearerToken = token
	}
}

// loadFiles reads the files of certificates and keys. Given the files,
// client-go would start a goroutine that looks for changes and is never
// stopped. An empty file is an error: without a CA the system's roots would be
// trusted.
func loadFiles(current *entry.Current, inner *rest.Config) error {
	if err := rest.LoadTLSFiles(inner); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	for _, f := range []struct {
		name string
		file *string
		data []byte
	}{
		{current.Field("certificate-authority"), &inner.CAFile, inner.CAData},
		{"client-certificate", &inner.CertFile, inner.CertData},
		{"client-key", &inner.KeyFile, inner.KeyData},
	} {
		if *f.file != "" && len(f.data) == 0 {
			return field.Errorf(f.name, "the file is empty")
		}
		*f.file = ""
	}
	return nil
}

// checkServer looks at what client-go would quote in an error later.
func checkServer(server string) error {
	if !strings.Contains(server, "://") {
		return errors.New("want a URL with a scheme: https://host:port")
	}
	_, err := hostport.ParseServer(server)
	return err
}

// besideFile takes a relative path from the directory of the cluster's kubeconfig.
func besideFile(cluster *clientcmdapi.Cluster, path string) string {
	if path == "" || filepath.IsAbs(path) || cluster.LocationOfOrigin == "" {
		return path
	}
	return filepath.Join(filepath.Dir(cluster.LocationOfOrigin), path)
}
