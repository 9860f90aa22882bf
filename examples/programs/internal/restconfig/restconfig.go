// Package restconfig makes the client configuration of a flag --kubeconfig.
package restconfig

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

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
	return clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
}
