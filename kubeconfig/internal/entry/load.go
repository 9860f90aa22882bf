package entry

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/internal/yamledit"
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
	var document yaml.Node // to decode it further would take the square of the number of keys
	if yaml.Unmarshal(data, &document) != nil || len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return errNotYAML
	}
	for _, kind := range []string{"clusters", "contexts", "users"} {
		list := yamledit.Child(document.Content[0], kind)
		if list == nil || list.Kind != yaml.SequenceNode {
			continue
		}
		seen := make(map[string]bool)
		for _, item := range list.Content {
			name := yamledit.Child(item, "name")
			switch {
			case name == nil:
			case seen[name.Value]:
				return fmt.Errorf("has two %s of the name %.100q", kind, name.Value)
			default:
				seen[name.Value] = true
			}
		}
	}
	return errors.New("is not a kubeconfig: a field has another type or value")
}
