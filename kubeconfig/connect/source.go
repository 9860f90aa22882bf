package connect

import (
	"context"
	"errors"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Source is where a kubeconfig comes from, and changes. See
// Options.Source, [SecretSource] and [FileSource].
type Source interface {
	// Read returns the kubeconfig as it is now.
	Read(ctx context.Context) (*clientcmdapi.Config, error)
	// Watch calls use with the kubeconfig, and again after each change, until
	// ctx ends, and returns then. An error says that there is none, or none
	// that can be read, and is followed by others: the last good kubeconfig
	// stays in use. The calls of use come one after the other. It may be called
	// with the same kubeconfig again, and only reads it.
	Watch(ctx context.Context, use func(*clientcmdapi.Config, error))
}

// errNotKubeconfig takes the place of clientcmd's errors, which quote what they
// can't read: a password, maybe.
var errNotKubeconfig = errors.New("is not a kubeconfig")

// load is clientcmd.Load with errors that hold no secret, and without the empty
// kubeconfig that it makes of nothing.
func load(data []byte) (*clientcmdapi.Config, error) {
	if len(data) == 0 {
		return nil, errors.New("is empty")
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, errNotKubeconfig
	}
	return config, nil
}
