package entry

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

var errNotYAML = errors.New("is not YAML, or not a mapping")

// Load is kubeconfig.Load. Its errors complete a sentence about the text.
func Load(data []byte) (*clientcmdapi.Config, error) {
	if len(data) == 0 {
		return nil, errors.New("is empty")
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, explainUnreadable(data)
	}
	return config, nil
}

// explainUnreadable takes the place of clientcmd's error, which quotes what it can't
// read: a password, maybe. Of two entries of one name it quotes all that they hold.
func explainUnreadable(data []byte) error {
	type named []struct{ Name string }
	var lists struct{ Clusters, Contexts, Users named }
	var mapping map[string]any
	if yaml.Unmarshal(data, &mapping) != nil {
		return errNotYAML
	}
	if yaml.Unmarshal(data, &lists) == nil {
		for _, list := range []struct {
			kind    string
			entries named
		}{{"clusters", lists.Clusters}, {"contexts", lists.Contexts}, {"users", lists.Users}} {
			seen := make(map[string]bool)
			for _, e := range list.entries {
				if seen[e.Name] {
					return fmt.Errorf("has two %s of the name %.100q", list.kind, e.Name)
				}
				seen[e.Name] = true
			}
		}
	}
	return errors.New("is not a kubeconfig: a field has another type or value")
}
