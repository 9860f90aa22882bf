package connect

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
)

// ReadFile returns the kubeconfig in a file. Relative paths in it are taken from
// the file's directory, as clientcmd takes them. Its errors quote nothing of the
// kubeconfig, as clientcmd's do.
//
// It is one file: the list of files that KUBECONFIG may hold is not read.
func ReadFile(path string) (*clientcmdapi.Config, error) {
	config, err := loadFile(path)
	if err != nil {
		return nil, fmt.Errorf("connect: file %s: %w", path, err)
	}
	return config, nil
}

func loadFile(path string) (*clientcmdapi.Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	config, err := entry.Load(data)
	if err != nil {
		return nil, err
	}
	for _, cluster := range config.Clusters {
		cluster.LocationOfOrigin = path
	}
	for _, user := range config.AuthInfos {
		user.LocationOfOrigin = path
	}
	return config, clientcmd.ResolveLocalPaths(config)
}
