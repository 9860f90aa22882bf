// Package restconfig makes the client configuration of a flag --kubeconfig. It links client-go's plugins,
// which log a person in (auth-provider).
package restconfig

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig/connect"
)

// Load returns what client-go makes of the kubeconfig in a file; without one, the pod's
// own. Its errors quote nothing of the kubeconfig, as client-go's do.
func Load(file string) (*rest.Config, error) {
	if file == "" {
		return rest.InClusterConfig()
	}
	config, err := connect.ReadFile(file)
	if err != nil {
		return nil, err
	}
	client, err := connect.New(config, nil) // only to check the fields
	if err != nil {
		return nil, err
	}
	client.Close()
	return FromConfig(config)
}

// FromConfig returns what client-go makes of a kubeconfig. A token that a plugin renews is kept in
// memory: client-go would write it to the files of KUBECONFIG, whatever file it is of.
func FromConfig(config *clientcmdapi.Config) (*rest.Config, error) {
	return clientcmd.NewNonInteractiveClientConfig(*config, config.CurrentContext, nil, nil).ClientConfig()
}
