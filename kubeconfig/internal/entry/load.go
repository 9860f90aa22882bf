package entry

import (
	"errors"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// errNotKubeconfig takes the place of clientcmd's errors, which quote what they
// can't read: a password, maybe.
var errNotKubeconfig = errors.New("is not a kubeconfig")

// Load is clientcmd.Load with errors that hold no secret, and without the empty
// kubeconfig that it makes of nothing.
func Load(data []byte) (*clientcmdapi.Config, error) {
	if len(data) == 0 {
		return nil, errors.New("is empty")
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, errNotKubeconfig
	}
	return config, nil
}
