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

// Load returns the kubeconfig in a YAML or JSON text. It is clientcmd.Load with errors
// that are fit for a log: clientcmd's quote what they can't read, and all users with
// their tokens and passwords if two have one name. An empty text is an error.
func Load(text []byte) (*clientcmdapi.Config, error) {
	config, err := entry.Load(text)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: the text %w", err)
	}
	return config, nil
}

// FromSecret returns the kubeconfig of a Secret as Cluster API keeps it, under
// [SecretKey]. An error names the Secret and quotes nothing that is in it, as
// with [Load].
//
// A kubeconfig that names a program (exec, auth-provider) or a file (tokenFile,
// client-certificate, client-key, certificate-authority) is an error: a user that may
// only write Secrets could run programs here, or have this program's own token sent to a
// server of theirs. If all writers of the Secret may do that, use Load.
func FromSecret(secret *corev1.Secret) (*clientcmdapi.Config, error) {
	if secret == nil {
		return nil, errors.New("kubeconfig: the Secret is nil")
	}
	config, err := loadSecret(secret)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return config, nil
}

func loadSecret(secret *corev1.Secret) (*clientcmdapi.Config, error) {
	data, ok := secret.Data[SecretKey]
	if !ok {
		return nil, fmt.Errorf("has no key %q", SecretKey)
	}
	config, err := entry.Load(data)
	if err == nil {
		err = checkLocal(config)
	}
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", SecretKey, err)
	}
	return config, nil
}

// checkLocal returns an error if the kubeconfig names a program or a file, in any of its
// entries: the caller may choose another context.
func checkLocal(config *clientcmdapi.Config) error {
	for name, cluster := range config.Clusters {
		if cluster != nil && cluster.CertificateAuthority != "" {
			return fmt.Errorf("the cluster %q names a file (certificate-authority)", name)
		}
	}
	for name, user := range config.AuthInfos {
		if local := entry.LocalName(user); local != "" {
			return fmt.Errorf("the user %q names %s", name, local)
		}
	}
	return nil
}
