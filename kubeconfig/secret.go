package kubeconfig

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
)

// Cluster API's contract for kubeconfig Secrets.
const (
	// SecretType is the type of the Secrets that Cluster API manages.
	SecretType corev1.SecretType = "cluster.x-k8s.io/secret"
	// SecretKey is the key of the kubeconfig in the Secret's data.
	SecretKey = "value"
	// ClusterNameLabel names the cluster that a Secret belongs to. Cluster
	// API's managers see labelled Secrets only.
	ClusterNameLabel = "cluster.x-k8s.io/cluster-name"

	secretSuffix = "-kubeconfig"
)

// Secret returns the Secret in which Cluster API looks for the kubeconfig of
// the cluster name: <name>-kubeconfig, of type [SecretType], labelled with the
// cluster's name, the kubeconfig under the key "value". owner, if not nil, is
// copied into its owner references: Cluster API sets the Cluster. Nothing is
// sent anywhere. An error is a [*FieldError].
//
// By the type, which can't be changed once the Secret exists, Cluster API's
// kubeadm control plane takes the Secret for its own: it sets itself as the
// owner, and before the client certificate reaches half its life it replaces
// the kubeconfig by one that keeps nothing of it but the server: proxy-url,
// tls-server-name and added CA certificates are gone. If there is no client
// certificate to look at, such as with a token, its reconciliation fails for
// as long as the Secret exists. Where that control plane runs and must keep
// its hands off, set another type on what is returned ("Opaque").
//
// The kubeconfig is written unchanged. Files that it names are not read: a
// consumer in another process will not find them.
func Secret(name, namespace string, config *clientcmdapi.Config, owner *metav1.OwnerReference) (*corev1.Secret, error) {
	_, configErr := entry.FollowContext(config)
	err := errors.Join(
		field.Wrap("name", field.CheckClusterName(name)),
		field.Wrap("namespace", field.CheckNamespace(namespace)),
		configErr,
	)
	if err != nil {
		return nil, err
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, field.Errorf("config", "serialize: %w", err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name + secretSuffix,
			Namespace: namespace,
			Labels:    map[string]string{ClusterNameLabel: name},
		},
		Type: SecretType,
		Data: map[string][]byte{SecretKey: data},
	}
	if owner != nil {
		secret.OwnerReferences = []metav1.OwnerReference{*owner.DeepCopy()}
	}
	return secret, nil
}

// Load returns the kubeconfig in a YAML or JSON text of this program's own: a file that a
// person named, say. It is clientcmd.Load with errors that are fit for a log: clientcmd's
// quote what they can't read, and all users with their tokens and passwords if two have one
// name. An empty text is an error. A text that somebody else wrote is for [FromSecret].
func Load(text []byte) (*clientcmdapi.Config, error) {
	config, err := entry.Load(text)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: the text %w", err)
	}
	return config, nil
}

// FromSecret returns the kubeconfig of a Secret as Cluster API keeps it, under
// [SecretKey]. An error names the Secret, and wraps a [*FieldError] if it is about a field. It
// quotes nothing that is secret, as with [Load].
//
// What it returns is only data, in all of its entries: a user that may only write Secrets
// could otherwise run programs here, have this program's own files sent to a server of
// theirs, or hold its processors and memory. These are errors:
//
//	exec, auth-provider                     a program
//	tokenFile, client-certificate,
//	client-key, certificate-authority       a file, also beside its data
//	the files of [ExtensionName]'s proxyTLS
//	the text                                over 1 MiB, 100,000 line ends and signs of YAML,
//	                                        or 1 MiB that aliases stand for
//	a list or mapping, such as clusters     over 1,000 items
//	the name of an entry                    over 1 KiB
//	certificates                            over 512 in a bundle
//	RSA keys, also of certificates          over 8,192 bits
//	token; user name with password          over 128 KiB
//	header, endpoints of [ExtensionName]    over 64 KiB, over 64
//
// If all writers of the Secret may do that, use Load.
func FromSecret(secret *corev1.Secret) (*clientcmdapi.Config, error) {
	if secret == nil {
		return nil, errors.New("kubeconfig: the Secret is nil")
	}
	name := fmt.Sprintf("Secret %s/%s: ", secret.Namespace, secret.Name)
	data, ok := secret.Data[SecretKey]
	if !ok {
		return nil, fmt.Errorf("kubeconfig: %shas no key %q", name, SecretKey)
	}
	config, err := entry.LoadForeign(data)
	var invalid *FieldError
	switch name += fmt.Sprintf("key %q: ", SecretKey); {
	case errors.As(err, &invalid):
		return nil, &FieldError{Field: name + invalid.Field, Err: invalid.Err}
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %s%w", name, err)
	}
	return config, nil
}
