package propagate

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// EnvSecrets are Secrets with the installation's configuration in the management
// cluster itself, to which [proxyconfig.Options] refers: each has what
// [proxyconfig.Config.EnvSecretData] returns. Other keys of such a Secret are
// kept, one that is not ours stays as it is, and when a namespace is no longer
// selected, the Secret stays: pods refer to it.
type EnvSecrets struct {
	// Name of the Secret in each namespace. Required.
	Name string
	// Namespaces selects namespaces by label. If nil, none; an empty one, all.
	Namespaces *metav1.LabelSelector
}

// compile returns the selector; nil for no Secrets.
func (e *EnvSecrets) compile() (labels.Selector, error) {
	if e == nil || e.Namespaces == nil {
		return nil, nil
	}
	if len(validation.IsDNS1123Subdomain(e.Name)) > 0 {
		return nil, errors.New("propagate: Options.EnvSecrets.Name: want the name of a Secret")
	}
	selector, err := metav1.LabelSelectorAsSelector(e.Namespaces)
	if err != nil {
		return nil, errors.New("propagate: Options.EnvSecrets.Namespaces: " + err.Error())
	}
	return selector, nil
}

// planEnv is Plan for the Secret of a namespace.
func planEnv(namespace, name string, installation, held *corev1.Secret, config Config) (Action, error) {
	c, err := config.ReadInstallation(installation)
	if err != nil {
		return Action{}, err
	}
	p := &planner{config: config}
	data := c.EnvSecretData()
	if held == nil {
		p.action.Writes = []Object{{Secret: &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{LabelManagedBy: config.managedBy()}},
			Type:       corev1.SecretTypeOpaque, Data: data,
		}}}
		return p.action, nil
	}
	if p.isOurs(Object{Secret: held}, held.Immutable) {
		next := held.DeepCopy()
		for _, key := range []string{KeyHTTPProxy, KeyHTTPSProxy, KeyNoProxy} {
			delete(next.Data, key)
		}
		next.Data = mergeMap(next.Data, data)
		if !equality.Semantic.DeepEqual(held, next) {
			p.action.Writes = []Object{{Secret: next}}
		}
	}
	return p.action, errors.Join(p.errs...)
}
