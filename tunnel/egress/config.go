package egress

import (
	"errors"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Configuration returns the EgressSelectorConfiguration, for kube-apiserver's
// --egress-selector-config-file, that sends what goes to the cluster through the HTTP proxy
// on a unix socket. The path of the socket has to be absolute.
func Configuration(socket string) ([]byte, error) {
	if !filepath.IsAbs(socket) || strings.HasSuffix(socket, "/") || strings.ContainsRune(socket, 0) {
		return nil, errors.New("egress: it is not the absolute path of a socket")
	}
	return yaml.Marshal(object{
		"apiVersion": "apiserver.k8s.io/v1beta1",
		"kind":       "EgressSelectorConfiguration",
		"egressSelections": []any{object{"name": "cluster", "connection": object{
			"proxyProtocol": "HTTPConnect", "transport": object{"uds": object{"udsName": socket}},
		}}},
	})
}
