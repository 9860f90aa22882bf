package entry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/keypair"
	"github.com/causewayproject/causeway/internal/quote"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// The bounds of a kubeconfig that somebody else wrote. See load.go for those of its text,
// field.MaxCertificates for bundles, and keypair.MaxRSABits for keys.
const (
	maxName      = 1 << 10   // bytes of an entry's name, which errors repeat; EKS has 100
	maxToken     = 128 << 10 // bytes, of a password too; with hundreds of groups a token has 20 KiB
	maxHeader    = 64 << 10  // bytes of the extension's header; proxies take 8 to 60 KiB
	maxEndpoints = 64        // of the extension; each may be dialed
)

var (
	errProgram = errors.New("names a program. A kubeconfig that is not this program's own is only data: want a token, or client-certificate-data and client-key-data")
	errFile    = errors.New("names a file. A kubeconfig that is not this program's own is only data: want the data itself")
)

// LoadForeign is [Load] for a text that somebody else wrote: from an object of an API
// server, or given by a tenant. What it returns is only data, in all of its contexts: to use it
// opens and runs nothing on this machine, and takes bounded memory and time. An error is a
// *field.Error, or completes a sentence about the text.
func LoadForeign(text []byte) (*clientcmdapi.Config, error) {
	config, without, err := LoadForeignRoute(text, true)
	if err == nil {
		err = without
	}
	if err != nil {
		return nil, err
	}
	return config, nil
}

// LoadForeignRoute is [LoadForeign] for a caller that only tries the way to the API server.
// A user that names a program or a file is left without credentials; the error without is
// about the first one. If extension is false, our extension is left out.
func LoadForeignRoute(text []byte, extension bool) (config *clientcmdapi.Config, without, err error) {
	if err := checkText(text); err != nil {
		return nil, nil, err
	}
	if config, err = Load(text); err != nil {
		return nil, nil, err
	}
	if err := checkNames(config); err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(config.AuthInfos)) {
		local, err := checkUser(config.AuthInfos[name])
		switch path := fmt.Sprintf("users[%q].", name); {
		case err != nil:
			return nil, nil, field.Wrap(path+local, err)
		case local != "":
			if without == nil {
				without = field.Wrap(path+local, localError(local))
			}
			config.AuthInfos[name] = clientcmdapi.NewAuthInfo()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		if c := config.Clusters[name]; c != nil && !extension {
			delete(c.Extensions, ExtensionName)
		}
		if err := checkCluster(name, config.Clusters[name]); err != nil {
			return nil, nil, err
		}
	}
	return config, without, nil
}

func localError(name string) error {
	if name == "exec" || name == "auth-provider" {
		return errProgram
	}
	return errFile
}

// checkNames bounds the names, which errors repeat.
func checkNames(config *clientcmdapi.Config) error {
	names := slices.Concat([]string{config.CurrentContext},
		slices.Collect(maps.Keys(config.Clusters)), slices.Collect(maps.Keys(config.AuthInfos)), slices.Collect(maps.Keys(config.Contexts)))
	for _, c := range config.Contexts {
		if c != nil {
			names = append(names, c.Cluster, c.AuthInfo)
		}
	}
	if slices.ContainsFunc(names, func(name string) bool { return len(name) > maxName }) {
		return fmt.Errorf("has an entry whose name is longer than %d bytes", maxName)
	}
	return nil
}

// checkUser returns the field that names a program or a file, or an error and the field that
// it is about.
func checkUser(user *clientcmdapi.AuthInfo) (name string, err error) {
	switch {
	case user == nil:
		return "", nil
	case user.Exec != nil:
		return "exec", nil
	case user.AuthProvider != nil:
		return "auth-provider", nil
	case user.TokenFile != "":
		return "tokenFile", nil
	case user.ClientCertificate != "":
		return "client-certificate", nil
	case user.ClientKey != "":
		return "client-key", nil
	case len(user.Token) > maxToken:
		return "token", fmt.Errorf("has %d bytes: want at most %d", len(user.Token), maxToken)
	case len(user.Username)+len(user.Password) > maxToken:
		return "password", fmt.Errorf("has, with the user name, %d bytes: want at most %d", len(user.Username)+len(user.Password), maxToken)
	}
	if name, err := checkImpersonation(user); err != nil {
		return name, err
	}
	if err := checkBundle(user.ClientCertificateData); err != nil {
		return "client-certificate-data", err
	}
	if err := keypair.Check(user.ClientKeyData); err != nil {
		return "client-key-data", err
	}
	return "", nil
}

// checkImpersonation returns the field that no header carries as it is.
func checkImpersonation(user *clientcmdapi.AuthInfo) (name string, err error) {
	values := map[string][]string{"as": {user.Impersonate}, "as-uid": {user.ImpersonateUID}, "as-groups": user.ImpersonateGroups,
		"as-user-extra": slices.Collect(maps.Keys(user.ImpersonateUserExtra))}
	for key, extra := range user.ImpersonateUserExtra {
		values[fmt.Sprintf("as-user-extra[%.100q]", key)] = extra
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, value := range values[name] {
			if err := quote.Check(value); err != nil {
				return name, err
			}
		}
	}
	return "", nil
}

func checkCluster(name string, cluster *clientcmdapi.Cluster) error {
	if cluster == nil {
		return nil
	}
	path := fmt.Sprintf("clusters[%q].", name)
	if cluster.CertificateAuthority != "" {
		return field.Wrap(path+"certificate-authority", errFile)
	}
	if err := checkBundle(cluster.CertificateAuthorityData); err != nil {
		return field.Wrap(path+"certificate-authority-data", err)
	}
	if err := checkExtensionFiles(name, cluster); err != nil {
		return err
	}
	e, err := ParseExtension(name, cluster)
	if err != nil {
		return nil // a client-go without our extension does not mind; a Client refuses it
	}
	return e.checkSizes(ExtensionField(name))
}

// checkBundle bounds the certificates that client-go finds in a PEM text.
func checkBundle(text []byte) error {
	certs := field.FindCertificates(text)
	if len(certs) > field.MaxCertificates {
		return fmt.Errorf("holds %d certificates: want at most %d", len(certs), field.MaxCertificates)
	}
	for i, cert := range certs {
		if err := keypair.CheckPublic(cert.PublicKey); err != nil {
			return fmt.Errorf("certificate %d: %w", i+1, err)
		}
	}
	return nil
}

// checkExtensionFiles looks for files in our extension, whatever version it has and however
// its fields are written.
func checkExtensionFiles(name string, cluster *clientcmdapi.Cluster) error {
	unknown, ok := cluster.Extensions[ExtensionName].(*runtime.Unknown)
	var extension, proxyTLS map[string]json.RawMessage
	if !ok || json.Unmarshal(unknown.Raw, &extension) != nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(extension)) {
		if !strings.EqualFold(key, "proxyTLS") || json.Unmarshal(extension[key], &proxyTLS) != nil {
			continue
		}
		for _, file := range []string{"certificateAuthority", "clientCertificate", "clientKey"} {
			for given, value := range proxyTLS {
				if text := string(value); strings.EqualFold(given, file) && text != `""` && text != "null" {
					return field.Wrap(ExtensionField(name)+".proxyTLS."+file, errFile)
				}
			}
		}
	}
	return nil
}

// checkSizes bounds what a Client sends and dials.
func (e *Extension) checkSizes(path string) error {
	size := 0
	for name, values := range e.Header {
		for _, value := range values {
			size += len(name) + len(value)
		}
	}
	switch {
	case size > maxHeader:
		return field.Errorf(path+".header", "has %d bytes: want at most %d", size, maxHeader)
	case len(e.Endpoints) > maxEndpoints:
		return field.Errorf(path+".endpoints", "has %d: want at most %d", len(e.Endpoints), maxEndpoints)
	}
	return nil
}
